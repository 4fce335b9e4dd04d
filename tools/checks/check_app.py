"""Drives the page that judges files in a headless Chromium.

    python tools/checks/check_app.py [--out=DIR] [--files=50]

Uploads, verdict, report and a bad file at 1280 and 390 px, and changes in the middle of reading; 20 hostile uploads,
one sentence each; 10 visitors at once, and one that says to be five; the server's memory after 50 files; 100,000 rows.
Needs Chromium, the packages websocket-client and gradio_client, and the extra `app`; with `--install` the server runs
from a fresh virtual environment, into which `pip install '.[app]'` installs this clone.
Screenshots lie in DIR. Exits with 1 where something does not hold.
"""

import argparse
import base64
import contextlib
import gzip
import importlib.util
import itertools
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # tools/

from eeg2text_testing.uploads import table, zipped

PORT = 7899
WORDS = ["river", "stone", "house", "green", "walks", "under", "light", "music", "paper", "winter", "bread", "north"]
SAID = "document.querySelector('#{} .said')?.innerText ?? ''"


def pairs(right: float, n: int = 60, seed: int = 0) -> list[tuple[str, str]]:
    first, rng = random.Random(0), random.Random(seed + 1)
    references = [[first.choice(WORDS) for _ in range(8)] for _ in range(n)]
    outputs = [[word if rng.random() < right else rng.choice(WORDS) for word in words] for words in references]
    return [(" ".join(r), " ".join(o)) for r, o in zip(references, outputs, strict=True)]


def hostile() -> dict[str, bytes]:
    """20 files that should be refused, by name; names are hostile, too."""
    whole, rng = table(pairs(0.5)), random.Random(0)
    return {
        "empty.csv": b"",
        "space.csv": b" \n\n",
        "random.bin": rng.randbytes(20_000),
        "utf32.csv": whole.decode().encode("utf-32"),  # UTF-16 with its mark is read
        "cut.gz": gzip.compress(whole)[:80],
        "bomb.gz": gzip.compress(b"truth,pred\n" + b"a b,c d\n" * 40_000_000, 1),
        "bomb.xlsx": zipped(b"\0" * 300_000_000),
        "plain.zip": zipped(whole, "a.csv", "b.csv"),
        "no.xlsx": zipped(b"<x>", "xl/workbook.xml"),
        "old.xls": b"\xd0\xcf\x11\xe0" + b"\0" * 600,
        "no.parquet": b"PAR1" + rng.randbytes(200),
        "deep.json": b"[" * 200_000,
        "deep2.json": b'{"a":' * 100_000,
        "no predictions.json": b'{"accuracy": 1.0}',
        "numbers.json": b'[{"truth": 1, "pred": 2}]',
        "ragged.csv": b"truth,pred\na,b\nc\n",
        "quote.csv": b'truth,pred\na,"b\nc,d\n',
        "one line.txt": b"x" * 3_000_000,
        "<img src=x onerror=alert(1)>.csv": b"no,header,that,is,known\na b,c d,e f,g h,i j\n",
        "$(touch hacked);'\"%2e%2e%2f.csv": b"truth,pred\n",
    }


class Browser:
    """A tab of a headless Chromium, driven through the DevTools protocol."""

    def __init__(self, port: int, folder: Path):
        import websocket

        chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if chromium is None:
            sys.exit("there is no Chromium; install it, such as by `apt-get install chromium`.")
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        flags += [f"--remote-debugging-port={port}", "--remote-allow-origins=*", f"--user-data-dir={folder}"]
        self.process = subprocess.Popen([chromium, *flags, "about:blank"], stderr=subprocess.DEVNULL)
        tabs = wait(lambda: json.loads(ask(f"http://127.0.0.1:{port}/json")), 60)
        address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
        self.socket = websocket.create_connection(address, timeout=120, max_size=2**28)
        self.numbers = itertools.count(1)
        self.errors: list[str] = []
        for domain in ("Page", "DOM", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("method") == "Page.javascriptDialogOpening":
                self.errors.append(f"a dialog opened: {message['params']['message']}")
                answer = {"id": 0, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}
                self.socket.send(json.dumps(answer))
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def evaluate(self, expression: str) -> Any:
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        return result["result"].get("value")

    def open(self, address: str, width: int) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=address)
        wait(lambda: self.evaluate("!!document.querySelector('#eeg input[type=file]')"), 90)

    def upload(self, where: str, path: Path) -> None:
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=f"#{where} input[type=file]")["nodeId"]
        self.call("DOM.setFileInputFiles", files=[str(path)], nodeId=node)

    def remove(self, where: str) -> None:
        buttons = f"#{where} button[aria-label*=emove], #{where} button[aria-label=Clear]"
        self.evaluate(f"document.querySelector('{buttons}').click()")

    def picture(self, path: Path, whole: bool = True) -> None:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        self.socket.close()
        self.process.terminate()
        self.process.wait(30)


def ask(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=30) as reply:
        return reply.read()


def wait(condition: Any, seconds: float) -> Any:
    """The first true value of a condition. Raises TimeoutError after some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if found := condition():
                return found
        time.sleep(0.3)
    raise TimeoutError("nothing came in time")


def clean_environment() -> dict[str, str]:
    """The environment without PYTHONPATH, whose packages pip would take for installed ones."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def installed(folder: Path) -> str:
    start = time.monotonic()
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin/python")
    clone = Path(__file__).parents[2]
    install = [python, "-m", "pip", "install", "-q", "--no-cache-dir", f"{clone}[app]"]
    subprocess.run(install, env=clean_environment(), check=True)
    print(f"installed in {time.monotonic() - start:.0f} s", flush=True)
    return python


@contextlib.contextmanager
def server(python: str, folder: str, host: str = "127.0.0.1", port: int = PORT) -> Iterator[subprocess.Popen]:
    """The page, served from an empty folder; a Python of its own does not see this clone."""
    own = python != sys.executable
    command = [python, "-m", "eeg2text_jax", "app", f"--port={port}", f"--host={host}"]
    process = subprocess.Popen(command, env=clean_environment() if own else None, cwd=folder if own else None)
    try:
        wait(lambda: ask(f"http://127.0.0.1:{port}/"), 180)
        yield process
    finally:
        process.terminate()
        process.wait(60)


def memory(process: subprocess.Popen) -> float:
    """Resident MiB of the server."""
    return int(Path(f"/proc/{process.pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024


def settled(browser: Browser, part: str, seconds: float) -> str:
    """What a part of the page says once it is no progress any more."""
    running = f"!!document.querySelector('#{part} .said[role=status]') || !({SAID.format(part)}).trim()"
    wait(lambda: not browser.evaluate(running), seconds)
    return browser.evaluate(SAID.format(part))


class Checks:
    def __init__(self) -> None:
        self.failed = 0

    def __call__(self, what: str, holds: bool, figure: object = "") -> None:
        self.failed += not holds
        print(f"{'holds' if holds else 'FAILS'}: {what} {figure}".rstrip(), flush=True)


def journey(browser: Browser, width: int, folder: Path, out: Path, check: Checks) -> None:
    """Upload two files, see what was read, a verdict and a report; then a bad file."""
    browser.open(f"http://127.0.0.1:{PORT}/", width)
    browser.upload("eeg", folder / "eeg.csv")
    read = settled(browser, "read", 90)
    check(f"{width} px: the page says what was read", "layout F (CSV" in read and "60 predictions" in read)
    browser.upload("control", folder / "control.csv")
    wait(lambda: "Control: layout" in browser.evaluate(SAID.format("read")), 90)
    browser.evaluate("document.querySelector('#judge').click()")
    verdict = settled(browser, "verdict", 200)
    check(f"{width} px: verdict", "content of unproven origin" in verdict or "uses EEG" in verdict, repr(verdict[:40]))
    report = browser.evaluate("document.querySelector('#keep')?.href ?? ''")
    document = base64.b64decode(report.partition("base64,")[2]).decode()
    size = f"{len(document) // 1024} KiB"
    check(f"{width} px: a report to keep", "<html" in document and "Verdict" in document, size)
    wide = browser.evaluate("document.documentElement.scrollWidth")
    check(f"{width} px: the page is no wider than the window", wide <= width, wide)
    browser.picture(out / f"verdict_{width}.png")
    browser.evaluate("document.querySelector('iframe.report').scrollIntoView()")
    time.sleep(2)
    browser.picture(out / f"report_{width}.png", whole=False)
    browser.open(f"http://127.0.0.1:{PORT}/", width)
    browser.upload("eeg", folder / "bad.csv")
    said = settled(browser, "read", 90)
    check(f"{width} px: a bad file is one sentence", "1 fields where the first line has 2" in said, repr(said[:90]))
    browser.picture(out / f"refused_{width}.png")


def choose(browser: Browser, where: str, value: str) -> None:
    """Type a value into a field with choices."""
    browser.evaluate(
        f"document.querySelector('#{where} input').focus(); document.querySelector('#{where} input').select()"
    )
    browser.call("Input.insertText", text=value)
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13)


def chosen(browser: Browser, where: str) -> str:
    return browser.evaluate(f"document.querySelector('#{where} input').value")


def calm(browser: Browser, part: str = "read") -> str:
    """What a part of the page says once it has not changed for four seconds."""
    said, since, end = "", time.monotonic(), time.monotonic() + 120
    while time.monotonic() < min(end, since + 4) or " s)" in said[-8:]:
        now = browser.evaluate(SAID.format(part))
        said, since = (said, since) if now == said else (now, time.monotonic())
        if time.monotonic() > end:
            break
        time.sleep(0.3)
    return said


def changes(browser: Browser, width: int, folder: Path, check: Checks, times: int) -> None:
    """Change files, columns and mode while a file is being read: the last choices are kept and answered."""
    rng, stale = random.Random(width), []
    for name, columns in (("one", ("truth", "draft", "final")), ("two", ("what", "first", "second"))):
        rows = [(r, f"{name} {columns[1]} {p}", f"{name} {columns[2]} {p}") for r, p in pairs(0.5)]
        (folder / f"{name}.csv").write_bytes(table(rows, columns))
    browser.open(f"http://127.0.0.1:{PORT}/", width)
    browser.upload("eeg", folder / "one.csv")
    calm(browser)
    browser.evaluate("document.querySelector('.label-wrap.open') || document.querySelector('.label-wrap').click()")
    name = "one"
    for turn in range(times):
        if turn and rng.random() < 0.5:
            name = "two" if name == "one" else "one"
            browser.remove("eeg")
            wait(lambda: browser.evaluate("!!document.querySelector('#eeg input[type=file]')"), 20)
            browser.upload("eeg", folder / f"{name}.csv")
            wait(lambda: "asrecognised" in chosen(browser, "said_column").replace(" ", ""), 20)
            calm(browser)
        truth, *outputs = ("truth", "draft", "final") if name == "one" else ("what", "first", "second")
        said = rng.choice(outputs)
        browser.evaluate(f"document.querySelectorAll('#mode input')[{rng.randrange(3)}].click()")
        for where, value in rng.sample([("true_column", truth), ("said_column", said)], 2):
            time.sleep(rng.random() * 1.2)
            choose(browser, where, value)
        if rng.random() < 0.5:
            time.sleep(rng.random() * 1.2)
            said = rng.choice(outputs)
            choose(browser, "said_column", said)
        read = calm(browser)
        kept = chosen(browser, "true_column"), chosen(browser, "said_column")
        if kept != (truth, said) or f"{name} {said} " not in read or f"prediction '{said}'" not in read:
            stale.append((turn, name, said, kept, read[:160]))
    check(f"{width} px: {times} changes in the middle of reading, no stale answer", not stale, stale[:3])


def refusal_goes(browser: Browser, width: int, folder: Path, check: Checks) -> None:
    browser.open(f"http://127.0.0.1:{PORT}/", width)
    browser.upload("eeg", folder / "eeg.csv")
    settled(browser, "read", 90)
    browser.upload("control", folder / "bad.csv")
    wait(lambda: "1 fields where" in browser.evaluate(SAID.format("read")), 90)
    browser.remove("control")
    read = calm(browser)
    gone = "60 predictions" in read and "1 fields" not in read
    check(f"{width} px: a refusal goes with its cause", gone, repr(read[:80]))


def hostile_uploads(browser: Browser, folder: Path, check: Checks) -> None:
    for name, data in hostile().items():
        (folder / name).write_bytes(data)
        browser.open(f"http://127.0.0.1:{PORT}/", 1280)
        browser.upload("eeg", folder / name)
        said = settled(browser, "read", 120).strip()
        refused = browser.evaluate("document.querySelectorAll('#read .said[role=alert]').length")
        one = refused == 1 and said.endswith((".", "?")) and "\n" not in said and "Traceback" not in said
        check(f"hostile upload {name!r} is one sentence", one, repr(said[:100]))
    check("no text of a file ran as a script", not browser.errors, browser.errors)


def looked(path: Path, visitor: str, place: str = f"127.0.0.1:{PORT}") -> str:
    """What the page says of a file, by the way that its own client takes, with the header of a server in front."""
    from gradio_client import Client, handle_file

    client = Client(f"http://{place}/", headers={"X-Forwarded-For": visitor}, verbose=False)
    try:
        choices = [None, None, "as recognised", "as recognised", "not stated"]
        return client.predict(handle_file(path), *choices, api_name="/look")[0]
    finally:
        client.close()


def many(process: subprocess.Popen, folder: Path, check: Checks, files: int) -> None:
    """10 visitors at once, then files one after the other: memory comes back."""
    with ThreadPoolExecutor(10) as visitors:
        answers = list(visitors.map(looked, [folder / "eeg.csv"] * 10, map("192.0.2.{}".format, range(10))))
        forged = list(visitors.map(looked, [folder / "eeg.csv"] * 5, [f"192.0.2.{i}, 198.51.100.1" for i in range(5)]))
    check("10 visitors at once are all answered", all("60 predictions" in answer for answer in answers))
    check("names before the last address make nobody several", any("jobs of yours" in answer for answer in forged))
    before = memory(process)
    for _ in range(files):
        looked(folder / "eeg.csv", "192.0.2.1")
    after = memory(process)
    check(f"memory after {files} files is within 50 MiB", after - before < 50, f"{before:.0f} -> {after:.0f} MiB")


def direct(python: str, folder: Path, check: Checks) -> None:
    """A visitor of another machine, without a server in front, is one, whatever it writes into the header."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.connect(("192.0.2.1", 9))  # sends nothing; says which address this machine has
        place = f"{own.getsockname()[0]}:{PORT + 2}"
    with server(python, str(folder), "0.0.0.0", PORT + 2), ThreadPoolExecutor(5) as jobs:
        names = map("192.0.2.{}".format, range(5))
        answers = list(jobs.map(looked, [folder / "eeg.csv"] * 5, names, [place] * 5))
    check("a visitor cannot be several by a header", any("jobs of yours" in answer for answer in answers))


def large(browser: Browser, folder: Path, check: Checks) -> None:
    """100,000 rows: a verdict, with progress meanwhile."""
    rows = [(f"S{subject}", *pair) for subject in range(20) for pair in pairs(0.4, 5000, subject)]
    (folder / "large.csv").write_bytes(table(rows, ("subject", "truth", "pred")))
    browser.open(f"http://127.0.0.1:{PORT}/", 1280)
    browser.upload("eeg", folder / "large.csv")
    start = time.monotonic()
    read = settled(browser, "read", 120)
    check("100,000 rows are read", "100000 predictions of 5000 sentences" in read, f"{time.monotonic() - start:.0f} s")
    start = time.monotonic()
    browser.evaluate("document.querySelector('#judge').click()")
    wait(lambda: " s)" in browser.evaluate(SAID.format("verdict")), 60)
    shown = browser.evaluate(SAID.format("verdict"))
    verdict = settled(browser, "verdict", 300)
    passed = time.monotonic() - start
    check("100,000 rows: a verdict in 60 s", "Provenance" in verdict and passed < 60, f"{passed:.0f} s")
    check("100,000 rows: progress is shown", " s)" in shown, repr(shown))


def check_needs(install: bool) -> None:
    """End with one sentence where something that the checks need is missing."""
    needs = {"websocket": "websocket-client", "gradio_client": "gradio_client"}
    needs |= {} if install else {"gradio": "gradio"}
    missing = [package for module, package in needs.items() if importlib.util.find_spec(module) is None]
    if missing:
        sys.exit(f"there is no {' and no '.join(missing)}; `pip install {' '.join(missing)}` brings what is missing.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/check_app"), help="folder of the screenshots")
    parser.add_argument("--files", type=int, default=50, help="files one after the other")
    parser.add_argument("--changes", type=int, default=25, help="changes in the middle of reading, at each width")
    parser.add_argument("--install", action="store_true", help="install the clone into a fresh environment first")
    flags = parser.parse_args()
    check_needs(flags.install)
    flags.out.mkdir(parents=True, exist_ok=True)
    check = Checks()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        python = installed(folder / "environment") if flags.install else sys.executable
        process = stack.enter_context(server(python, str(folder)))
        good, null = pairs(0.6), pairs(0.0)
        (folder / "eeg.csv").write_bytes(table(good))
        (folder / "control.csv").write_bytes(table([(g[0], n[1]) for g, n in zip(good, null, strict=True)]))
        (folder / "bad.csv").write_bytes(b"truth,pred\na,b\nc\n")
        browser = Browser(PORT + 1, folder / "profile")
        try:
            for width in (1280, 390):
                journey(browser, width, folder, flags.out, check)
                refusal_goes(browser, width, folder, check)
                changes(browser, width, folder, check, flags.changes)
            hostile_uploads(browser, folder, check)
            large(browser, folder, check)
        finally:
            browser.close()
        many(process, folder, check, flags.files)
        check("the server lives", process.poll() is None)
        direct(python, folder, check)
    print(f"{check.failed} of the checks failed")
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
