"""The gradio page: uploads, the rows read, verdict, figures, report, and published outputs."""

import base64
import contextlib
import dataclasses
import html
import ipaddress
import itertools
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.packages import library
from eeg2text_jax.instrument.app._worker import ANSWER, REFERENCES, ROLES

# Jobs: copy a visitor's files, judge them in a worker process with limits, delete them.

BYTES = 64 * 2**20  # largest size of an upload, in bytes
SECONDS = {"look": 60, "judge": 180}  # kind of job -> limit of CPU time in seconds
PATIENCE = 2  # limit of wall-clock time, in multiples of the limit of CPU time: the machine may be busy
EACH = 2  # most jobs of a visitor that run or wait
GONE = 10  # seconds without a question after which a waiting job has no visitor
POLL = 0.5  # seconds between reports of progress


class Progress(NamedTuple):
    line: str  # the last that the worker printed
    seconds: float  # since the start of the job


class Answer(NamedTuple):
    content: dict[str, Any]  # JSON answer of the worker; of a refused job only `refused`, the reason in a sentence
    report: str = ""  # HTML, "" without a report


@dataclasses.dataclass(eq=False)
class _Job:
    visitor: str
    until: float  # time until which the job counts: its visitor may be gone, its process killed


class Turns:
    """One job at a time, in turns: next is a job of the visitor whose last job ended first, or who had none.

    So a visitor waits for the running job and at most one of each other visitor.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: dict[str, float] = {}  # visitor -> when the last job ended
        self._waiting: list[_Job] = []  # in order of arrival
        self._running: _Job | None = None

    def enter(self, visitor: str) -> _Job:
        """Return a job that waits. Raises UserError if `EACH` jobs of the visitor run or wait."""
        with self._lock:
            self._drop_gone()
            if sum(one.visitor == visitor for one in (*self._waiting, self._running) if one) >= EACH:
                raise UserError(f"{EACH} jobs of yours run or wait already; wait until one is done, then try again.")
            self._waiting.append(job := _Job(visitor, time.monotonic() + GONE))
            return job

    def begins(self, job: _Job, seconds: float) -> bool:
        """Return whether it is the turn of a job, which then has `seconds`. Ask again within `GONE`."""
        with self._lock:
            job.until = time.monotonic() + GONE
            self._waiting += [job] * (job not in self._waiting)
            self._drop_gone()
            if self._running or job is not min(self._waiting, key=lambda one: self._ended.get(one.visitor, 0.0)):
                return False
            self._waiting.remove(job)
            self._running, job.until = job, job.until + seconds
            return True

    def leave(self, job: _Job) -> None:
        with self._lock:
            if job is self._running:
                self._running = None
                hour_ago = time.monotonic() - 3600
                self._ended = {name: at for name, at in self._ended.items() if at > hour_ago}
                self._ended[job.visitor] = time.monotonic()
            elif job in self._waiting:
                self._waiting.remove(job)

    def _drop_gone(self) -> None:
        now = time.monotonic()
        self._waiting = [one for one in self._waiting if one.until > now]
        if self._running and self._running.until < now:
            self._ended[self._running.visitor], self._running = now, None


_TURNS = Turns()


def run(
    do: str,
    uploads: Mapping[str, str | None],
    request: Mapping[str, Any],
    seconds: int | None = None,
    visitor: str = "",
) -> Iterator[Progress | Answer]:
    """Read (`look`) or `judge` uploads, role -> path: yield progress, then the answer; no copies stay.

    `request` is the worker's; `seconds`, the limit of CPU time, is by default that of `SECONDS`.
    """
    limit, start = SECONDS[do] if seconds is None else seconds, time.monotonic()
    job = None
    try:
        job = _TURNS.enter(visitor)
        while not _TURNS.begins(job, PATIENCE * limit):
            yield Progress("waiting for other visitors' files", time.monotonic() - start)
            time.sleep(POLL)
        with tempfile.TemporaryDirectory(prefix="eeg2text-job-") as name:
            place(uploads, Path(name))
            yield from _work(Path(name), {"do": do, "seconds": limit, **request}, limit)
    except UserError as error:
        yield Answer({"refused": str(error), "columns": []})
    finally:
        if job:
            _TURNS.leave(job)


def place(uploads: Mapping[str, str | None], folder: Path) -> None:
    """Copy uploads, role -> path, to files named by role. Raises UserError for no predictions, or a large upload."""
    if not uploads.get(ROLES[0]):
        raise UserError("there is no file of predictions; add one first.")
    for role in (*ROLES, REFERENCES):
        if not (upload := uploads.get(role)):
            continue
        if not os.path.isfile(upload):
            raise UserError(f"{role}: the upload was deleted (it is kept for minutes only); upload the file again.")
        if (size := os.path.getsize(upload)) > BYTES:
            raise UserError(f"{role}: {size / 2**20:.0f} MiB; this page takes files of {BYTES // 2**20} MiB at most.")
        shutil.copyfile(upload, folder / role)


def _work(folder: Path, request: dict[str, Any], limit: int) -> Iterator[Progress | Answer]:
    start = time.monotonic()
    process = _start(folder)
    killer = threading.Timer(PATIENCE * limit, _kill, [process])  # also if nobody asks for progress any more
    killer.start()
    try:
        with contextlib.suppress(BrokenPipeError):  # a worker that died at once is reported below
            process.stdin.write(json.dumps(request))
            process.stdin.close()
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=lambda: [*map(lines.put, process.stdout)], daemon=True).start()
        last = "starting"
        while process.poll() is None:
            with contextlib.suppress(queue.Empty):
                last = lines.get(timeout=POLL).strip() or last
            yield Progress(last, time.monotonic() - start)
    finally:
        killer.cancel()
        _kill(process)
        process.wait()
        process.stdout.close()
    answer, report = folder / ANSWER, folder / "report.html"
    if process.returncode == -signal.SIGXCPU or time.monotonic() - start > PATIENCE * limit:
        remedy = "judge the files with `eeg2text audit` on a machine of yours"
        raise UserError(f"the job takes more than {limit} s; {remedy}.")
    if process.returncode or not answer.is_file():
        do = "read" if request["do"] == "look" else "judge"
        what = "this is a fault of the program, not of the files: please report it"
        raise UserError(f"the page could not {do} these files; {what}.")
    content = json.loads(answer.read_text(encoding="utf8"))
    yield Answer(content, report.read_text(encoding="utf8") if report.is_file() else "")


def _start(folder: Path) -> subprocess.Popen:
    """Start the worker in its own process group, with one thread for linear algebra and our `sys.path`."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    environment |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment |= {"PYTHONPATH": os.pathsep.join(os.path.abspath(place) for place in sys.path if place)}
    environment |= {"MPLBACKEND": "Agg"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-P", "-m", "eeg2text_jax.instrument.app._worker"]
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, start_new_session=True, **pipes)


def _kill(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


# Parts of the page as HTML: texts of visitors are escaped, and a report is framed without scripts.

OPTIONS = "References in a file of their own, mode, columns, proof"  # heading of a section
UNPROVEN = "content of unproven origin"
LABELS = {"eeg": "Predictions", "control": "Control", "references": "References"}
# `FIELDS` maps command-line options in messages to words for their counterparts on the page.
COLUMNS = r"--columns=(?:'[^']*'|[^\s;.]+)"
NAMED = (
    r"(?:name (?:it|them|both|one|two|(?:both|the) columns) with|set|"
    r"give two numbers, or two names if line 1 is a header, with) "
)
FIELDS = {
    NAMED + COLUMNS: f"choose the columns under “{OPTIONS}”",
    COLUMNS: "the columns chosen",
    r"give (?:its references|these|their references) with --reference=FILE": f"add its references under “{OPTIONS}”",
    r"leave --reference out": "remove the file of references",
    r"--reference(?:=FILE)?": "the file of references",
    r",? (?:or |and )?(?:say|set) (?:--format=\w+[^.;]*|whether this (?:line )?is [^.;]*)": "",
    r",? such as --columns=.*": "",
    r"say --id=.*": "say with the command `eeg2text audit` how to join them",
    r"--block=N takes one.*": "choose one with the command `eeg2text audit`.",
    r"with --mode=free_running or --proof, or show it with --again for a run of eeg2text": "with the mode or a proof",
    r"--mode(?:=\w+)?": "the mode",
    r"--proof(?:='[^']*')?": "the proof",
    r"--groups=COLUMN": "a column of groups in the file",
    r"; see `eeg2text score --help` for the layouts": "",
}
CSS = """
.judged { border-left: 6px solid #D55E00; padding: .6rem 1rem; background: rgba(128, 128, 128, .08); }
.judged.good { border-color: #009E73; } .judged.open { border-color: #8A8A8A; }
.judged b { font-size: 1.5rem; }
.scroll { overflow-x: auto; max-width: 100%; }
.scroll table { border-collapse: collapse; font-size: 14px; margin: .5rem 0; }
.scroll td, .scroll th { padding: .25rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid #8884; }
.scroll td { overflow-wrap: break-word; min-width: 4.5rem; }
@media (max-width: 600px) {
  .judged b { font-size: 1.2rem; }
  .scroll td, .scroll th { padding: .2rem; font-size: 12px; min-width: 3rem; }
}
.refused { border-left: 6px solid #a3271f; padding: .6rem 1rem; }
iframe.report { width: 100%; height: 70vh; border: 1px solid #8884; background: #fff; }
"""


def refusal(content: Mapping[str, Any]) -> str:
    return f'<div class="said refused" role="alert">{text(on_page(content["refused"]), 600)}</div>'


def on_page(sentence: str) -> str:
    """Replace the options and roles in a command-line message by the page's fields and labels."""
    for option, field in FIELDS.items():
        sentence = re.sub(option, field, sentence)
    sentence = re.sub(r"[;,] [^;,]*--\w+[^;]*?(?=;|\.$|$)", "", sentence)  # what the page has no field for
    sentence = sentence if sentence.endswith((".", "?")) else f"{sentence}."
    return re.sub(r"^(eeg|control|references)(?=[:,] )", lambda role: LABELS[role[0]], sentence)


def progress(state: Progress) -> str:
    return f'<p class="said" role="status">{text(state.line)} ({state.seconds:.0f} s)</p>'


def reading(content: Mapping[str, Any]) -> str:
    heads = ["file", "subject", "condition", "reference", "prediction"]
    # Narrow screens have little room.
    columns = [i for i in range(len(heads)) if i > 2 or {row[i] for row in content["examples"]} - {"unknown"}]
    examples = table([[row[i] for i in columns] for row in (heads, *content["examples"])])
    lines = "".join(f"<p>{text(on_page(line), 2000)}</p>" for line in content["said"])
    return f'<div class="said"><h3>What was read</h3>{lines}{examples}</div>'


def verdict(content: Mapping[str, Any]) -> str:
    limits = "".join(f"<li>{text(on_page(limit), 2000)}</li>" for limit in content["limits"])
    if content["verdict"].startswith(UNPROVEN):
        limits += f"<li>Mode and proof can be stated above, under <i>{OPTIONS}</i>; then judge again.</li>"
    tables = "".join(table(list(zip(*rows, strict=True))) for rows in content["tables"])  # a column of each condition
    sentence = f"<b>{text(content['verdict'])}</b><p>{text(on_page(content['sentence']), 2000)}</p>"
    return f'<div class="said"><div class="judged {content["color"]}">{sentence}<ul>{limits}</ul></div>{tables}</div>'


def report(document: str) -> str:
    """Return a link that downloads the report, and a frame without scripts that shows it."""
    data = base64.b64encode(document.encode()).decode()
    return (
        f'<p><a id="keep" download="report.html" href="data:text/html;charset=utf-8;base64,{data}">Keep the report'
        f'</a></p><iframe class="report" title="Report" sandbox="" srcdoc="{html.escape(document)}"></iframe>'
    )


def table(rows: Sequence[Sequence[str]]) -> str:
    tags = itertools.chain(["th"], itertools.repeat("td"))
    cells = ("".join(f"<{tag}>{text(cell)}</{tag}>" for cell in row) for tag, row in zip(tags, rows, strict=False))
    return f'<div class="scroll"><table>{"".join(f"<tr>{row}</tr>" for row in cells)}</table></div>'


def text(value: object, longest: int = 300) -> str:
    """Return a value as HTML-escaped text, cut after `longest` characters."""
    value = str(value)
    return html.escape(value if len(value) <= longest else f"{value[:longest]} ...")


KEPT = 600  # seconds after which an upload is deleted
WAITING = 20  # most jobs that wait
WIDTHS = ["190px", "150px", *["110px"] * 8]  # of the table of published outputs
GUESSED = "as recognised"
MODES = {"not stated": None, "free running: no target reached the decoder": "free_running"}
MODES["teacher forced: every token was predicted from the true ones before it"] = "teacher_forced"
ABOUT = """# Does the model use the brain signals?

Add decoded text: one file of any layout with references and predictions, and, if there is one, a file of a control
(the same model fed noise or another sentence's recording). Files are judged where this page runs, one after the other,
and removed.
"""


def request_of(reference: str, prediction: str, mode: str, proof: str = "") -> dict[str, Any]:
    columns = [name for name in (reference, prediction) if name and name != GUESSED]
    return {"columns": columns if len(columns) == 2 else None, "mode": MODES.get(mode), "proof": proof}


def visitor_of(visit: Any) -> str:
    """Return the address of a `gradio.Request`; of IPv6 the network, which one visitor has whole.

    uvicorn believes `X-Forwarded-For` from this machine alone (a server in front), and of its addresses the last.
    """
    try:
        address = ipaddress.ip_address(visit.client.host)
    except (AttributeError, TypeError, ValueError):  # no client
        return ""
    address = getattr(address, "ipv4_mapped", None) or address
    return str(address if address.version == 4 else ipaddress.ip_network((address, 64), strict=False))


def build() -> Any:
    """Return the page that judges uploads, as `gradio.Blocks`. Raises UserError if gradio is not installed."""
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    gr = library("gradio", "app")
    look, judge, forget = _actions(gr)
    with gr.Blocks(title="EEG-to-text, judged", delete_cache=(60, KEPT), analytics_enabled=False) as page:
        gr.Markdown(ABOUT)
        with gr.Row():
            with gr.Column(scale=3, min_width=320):
                choices, proof, options = _choices(gr)
                button = gr.Button("Judge", variant="primary", elem_id="judge")
                result = gr.HTML(elem_id="verdict")
                read = gr.HTML(elem_id="read")
                report = gr.HTML(elem_id="report")
            with gr.Column(scale=2, min_width=320):
                gr.Markdown("### Published outputs, judged by the same program\nClick a heading to sort.")
                headings, rows = field_table(field_page().read_text("utf8") if field_page().is_file() else "")
                looks = {"elem_id": "field", "max_height": 700, "column_widths": WIDTHS, "wrap": True}
                gr.Dataframe(rows, headers=headings, interactive=False, **looks)
        eeg, control, references, reference, prediction, mode = choices
        # Jobs take turns in `Turns`; gradio's own queue knows no visitors.
        together = {"concurrency_limit": WAITING, "concurrency_id": "job", "show_progress": "hidden"}
        shows = [read, reference, prediction, result, report, options]
        # With "always_last", a change in the middle of a job starts a job with the newest choices behind it.
        latest = {"trigger_mode": "always_last", **together}
        # A choice of columns is of one file: it goes before another is read, never afterwards.
        fresh = gr.on([eeg.upload, eeg.clear], forget, None, [reference, prediction], queue=False, api_name=False)
        fresh.then(look, choices, shows, api_name="look", **latest)
        changes = [control.change, references.change, mode.change, reference.input, prediction.input]
        gr.on(changes, look, choices, shows, api_name=False, **latest)
        proof.input(lambda: ("", ""), None, [result, report], queue=False, api_name=False)
        button.click(judge, [*choices, proof], [result, report], api_name="judge", **together)
    return page


def _choices(gr: Any) -> tuple[list[Any], Any, Any]:
    """Add the input fields; return those that every job reads, the proof, and the accordion of options."""
    with gr.Row():
        eeg = gr.File(label="Predictions", elem_id="eeg", height=140, min_width=260)
        control = gr.File(label="Control, if any", elem_id="control", height=140, min_width=260)
    with gr.Accordion(OPTIONS, open=False) as options:
        gr.Markdown("What `--reference`, `--mode`, `--columns` and `--proof` say at the command line.")
        references = gr.File(label="References", elem_id="references", height=120)
        mode = gr.Radio(list(MODES), value="not stated", label="How the text was decoded", elem_id="mode")
        # A client of the API may name a column before the file is read.
        column = {"value": GUESSED, "min_width": 150, "allow_custom_value": True}
        with gr.Row():
            reference = gr.Dropdown([GUESSED], label="Column of the references", elem_id="true_column", **column)
            prediction = gr.Dropdown([GUESSED], label="Column of the predictions", elem_id="said_column", **column)
        proof = gr.Textbox(label="How it is known that no target reached the decoder", elem_id="proof")
    return [eeg, control, references, reference, prediction, mode], proof, options


def _actions(gr: Any) -> tuple[Callable[..., Iterator], Callable[..., Iterator], Callable[[], tuple]]:
    """Return event handlers: `look` reads changed files, `judge` judges them, `forget` removes choices of columns.

    `look` changes no choice: the visitor may have chosen since the job began.
    """
    keep = gr.update()

    def forget() -> tuple:
        return tuple(gr.update(choices=[GUESSED], value=GUESSED) for _ in range(2))

    def look(eeg, control, references, reference, prediction, mode, visit: gr.Request) -> Iterator[tuple]:
        if not eeg:
            yield "", keep, keep, "", "", keep
            return
        request = request_of(reference, prediction, mode)
        uploads = {"eeg": eeg, "control": control, "references": references}
        for state in run("look", uploads, request, visitor=visitor_of(visit)):
            if isinstance(state, Progress):
                yield progress(state), keep, keep, "", "", keep
                continue
            columns = [GUESSED, *dict.fromkeys(state.content["columns"])]
            selects = [gr.update(choices=columns, visible=len(columns) > 1)] * 2
            if "refused" in state.content:  # open the options: a choice there may make the file readable
                yield refusal(state.content), *selects, "", "", gr.update(open=True)
            else:
                yield reading(state.content), *selects, "", "", keep

    def judge(
        eeg, control, references, reference, prediction, mode, proof, visit: gr.Request
    ) -> Iterator[tuple[str, str]]:
        request = request_of(reference, prediction, mode, proof)
        uploads = {"eeg": eeg, "control": control, "references": references}
        for state in run("judge", uploads, request, visitor=visitor_of(visit)):
            if isinstance(state, Progress):
                yield progress(state), ""
            elif "refused" in state.content:
                yield refusal(state.content), ""
            else:
                yield verdict(state.content), report(state.report)

    return look, judge, forget


def serve(host: str, port: int) -> None:
    """Serve the page until interrupted, with uploads and jobs in a folder that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="eeg2text-app-") as folder:
        os.environ["GRADIO_TEMP_DIR"] = tempfile.tempdir = folder  # jobs copy uploads into `tempdir`
        page = build()
        gr = library("gradio", "app")
        theme = gr.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
        options = {"share": False, "quiet": True, "prevent_thread_lock": True, "footer_links": [], "ssr_mode": False}
        options |= {"max_file_size": BYTES, "blocked_paths": [str(Path.home())]}
        page.queue(max_size=WAITING).launch(server_name=host, server_port=port, theme=theme, css=CSS, **options)
        print(f"Running on http://{host}:{port}, until Ctrl-C.", flush=True)
        try:
            page.block_thread()
        finally:
            page.close()


FIELD_COLUMNS = ("set", "verdict", "input", "mode, file says", "rows", "sentences", "BLEU-1", "content", "p")
FIELD_COLUMNS += ("difference",)


def field_page() -> Path:
    """Return the page on published outputs: beside this module in a wheel, in `docs` of a clone."""
    here = Path(__file__).parent
    return next((place for place in (here / "field.md", here.parents[2] / "docs/field.md") if place.is_file()), here)


def field_table(page: str) -> tuple[list[str], list[list[str | float | None]]]:
    """Return headings and rows of the first Markdown table with columns `set` and `verdict`."""
    lines = (line.strip().removeprefix("|").removesuffix("|") for line in page.splitlines() if line.startswith("|"))
    rows = [[cell.strip().strip("`*") for cell in line.split("|")] for line in lines]
    heads = [i for i, row in enumerate(rows) if {"set", "verdict"} <= set(row)]
    if not heads:
        return [], []
    head, end = rows[heads[0]], heads[1] if len(heads) > 1 else len(rows)
    table = itertools.takewhile(lambda row: len(row) == len(head), rows[heads[0] + 2 : end])
    places = [head.index(name) for name in FIELD_COLUMNS if name in head]
    shown = ["p, at most" if head[i] == "p" else head[i] for i in places]
    return shown, [[figure(row[i]) for i in places] for row in table]


def figure(cell: str) -> str | float | None:
    """Return a cell as a float (of a bound such as "< 0.001", too), None (empty or a dash), or its text."""
    try:
        return float(cell.removeprefix("< "))
    except ValueError:
        return None if cell in ("", "–") else cell
