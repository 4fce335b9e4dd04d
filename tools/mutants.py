"""Mutation testing: small changes of our own code at random, one at a time; how many do the tests that relate notice?

    python tools/mutants.py RESULTS.jsonl [--count 200] [--seed 0] [--folders training,decoding,...] [--seconds 120]
    python tools/mutants.py RESULTS.jsonl --again     # those that survived, by the tests as they are now
    python tools/mutants.py RESULTS.jsonl --table     # what was found so far

Each kind of change (`eeg2text_testing.mutation`) is drawn equally often, each of its places with equal probability.
Tests that relate are those that import the module, directly or over others: the files nearest to it come first, the
quickest of them before the others, until one fails or `--seconds` of CPU time are spent. A test that catches a change
must pass without it. A mutant that hangs is caught. The tree is a copy of the last commit; the command resumes.

mutmut and cosmic-ray draw no sample by a seed and know no time limit for a mutant; cosmic-ray starts a process for
each, which here imports for ten seconds, and mutmut wraps functions, which changes what JAX traces. Here a process that
has imported the libraries, and nothing of ours, forks for each mutant.
"""

import argparse
import collections
import compileall
import dataclasses
import difflib
import json
import math
import os
import py_compile
import random
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from eeg2text_testing.mutation import Mutant, mutants
from eeg2text_testing.related_tests import Related

ROOT = Path(__file__).parents[1]
FOLDERS = "training,decoding,search,conditions,splits,auditing,judge,stores"
# What they hold is words and pictures, or the pace of a machine.
LEFT_OUT = ("report", "figures", "page", "pictures", "tracker", "tracker_process", "curves", "split_map", "topomap")
HANGS = 60.0, 1800.0  # CPU-seconds, and seconds, of one test without an end, beyond which the mutant hangs
QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # plugins that libraries have imported already
FIRST = 6  # files of tests in the first process for a mutant; then twice as many


class Recorder:
    """A plugin of pytest: keeps the order of the files, and writes down what each test came to."""

    def __init__(self, files: Sequence[str], log: Path, seconds: float):
        self.files, self.log, self.seconds = list(files), log.open("a", buffering=1), seconds

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.log.write(json.dumps({"began": nodeid}) + "\n")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list) -> None:
        items.sort(key=lambda item: self.files.index(item.nodeid.split("::")[0]))

    def pytest_collectreport(self, report) -> None:
        if report.failed:
            self.log.write(json.dumps({"failed": f"{report.nodeid} (import)"}) + "\n")

    def pytest_runtest_logreport(self, report) -> None:
        kind = "failed" if report.failed else "took"
        self.log.write(json.dumps({kind: report.nodeid, "seconds": report.duration}) + "\n")

    def pytest_runtest_protocol(self, item) -> None:
        if sum(os.times()[:4]) > self.seconds:
            self.log.write(json.dumps({"spent": True}) + "\n")
            item.session.shouldstop = "the time is spent"


class Bench:
    """A copy of the tree, in which tests are run by processes that are forked from this one."""

    def __init__(self, root: Path, commit: str):
        self.root, self.log, self.sound = root / "tree", root / "log.jsonl", {}
        self.root.mkdir()
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "x"], cwd=self.root, input=archive, check=True)
        for name in ("JAX_COMPILATION_CACHE_DIR", "PYTEST_DEBUG_TEMPROOT"):
            os.environ.setdefault(name, str(root / name))
            Path(os.environ[name]).mkdir(exist_ok=True)
        os.environ |= {"PYTHONPATH": f"{self.root}:{self.root}/tools", "PYTHONDONTWRITEBYTECODE": "1"}
        sys.path[:0], sys.dont_write_bytecode = [str(self.root), str(self.root / "tools")], True
        checked = py_compile.PycInvalidationMode.CHECKED_HASH  # a change within a second is seen
        compileall.compile_dir(self.root, quiet=2, invalidation_mode=checked)
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        runpy.run_path(str(self.root / "tests/conftest.py"))
        for name in ("flax.nnx", "optax", "orbax.checkpoint", "grain", "transformers", "torch", "h5py", "scipy.stats",
                     "sacrebleu", "jiwer", "rouge_score", "ml_collections", "matplotlib.figure", "pytest"):  # fmt: skip
            __import__(name)
        self.related = Related(self.root)

    def judge(self, mutant: Mutant, seconds: float) -> dict:
        """What came of a mutant: `outcome` (caught, hung, survived), `by` which test, the number of files, seconds."""
        place, begun = self.root / mutant.module, sum(os.times()[:4])
        source, files = place.read_bytes(), self.related.files(mutant.module)
        done, size, row = 0, FIRST, {"outcome": "survived", "by": ""}
        try:
            while done < len(files) and row["outcome"] == "survived" and _spent(begun) < seconds:
                place.write_bytes(mutant.applied(source))
                row = self.tested(files[done : done + size], seconds - _spent(begun))
                place.write_bytes(source)
                if row["outcome"] != "survived" and not self._passes(row["by"]):
                    row = {"outcome": "survived", "by": ""}  # the test fails anyway: it shows nothing
                done, size = done + size, 2 * size
        finally:
            place.write_bytes(source)
        return {**row, "files": min(done, len(files)), "of": len(files), "seconds": round(_spent(begun))}

    def _passes(self, test: str) -> bool:
        """Whether a test passes on the tree as it is."""
        name = test.removesuffix(" (import)")
        if name not in self.sound:
            self.sound[name] = self.tested([name], 600)["outcome"] == "survived"
        return self.sound[name]

    def tested(self, files: Sequence[str], seconds: float) -> dict:
        """Runs files of tests until one test fails."""
        self.log.unlink(missing_ok=True)
        child = os.fork()
        if not child:
            self._run(files, seconds)
        status = self._wait(child)
        lines = [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []
        if not lines:
            raise RuntimeError(
                f"no test was run (status {status}):\n{self.log.with_suffix('.out').read_text()[-3000:]}"
            )
        took = collections.Counter()
        for line in lines:
            took[line.get("took", "").split("::")[0]] += line.get("seconds", 0.0)
        self.related.seconds |= {name: max(spent, self.related.seconds.get(name, 0.0)) for name, spent in took.items()}
        failed = next((line["failed"] for line in lines if "failed" in line), "")
        last = next((line["began"] for line in reversed(lines) if "began" in line), files[0])
        if not failed and (status in (0, 5) or any("spent" in line for line in lines)):
            return {"outcome": "survived", "by": ""}
        return {"outcome": "hung" if status is None else "caught", "by": failed or last}

    def _wait(self, child: int) -> int | None:
        """Its exit status; None where it was ended because it hangs."""
        seen, since, spent = -1, time.monotonic(), 0.0
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            size = self.log.stat().st_size if self.log.exists() else 0
            if size != seen:
                seen, since, spent = size, time.monotonic(), _cpu_seconds(child)
            if _cpu_seconds(child) - spent > HANGS[0] or time.monotonic() - since > HANGS[1]:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return None
            time.sleep(0.1)

    def _run(self, files: Sequence[str], seconds: float) -> None:
        """The child: pytest in the copy."""
        status = 70
        try:
            os.setsid()
            os.chdir(self.root)
            for name in [name for name in sys.modules if name.startswith("eeg2text_testing")]:
                del sys.modules[name]  # the copy has its own
            silent = os.open(self.log.with_suffix(".out"), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            for descriptor in (0, 1, 2):
                os.dup2(silent, descriptor)
            own = [file.split("::")[0] for file in files]
            arguments = ["-x", "-p", "no:cacheprovider", *QUIET, *files]
            status = int(pytest.main(arguments, plugins=[Recorder(own, self.log, seconds)]))
            sys.stdout.flush()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)


def _spent(begun: float) -> float:
    """CPU-seconds of this process and of those it waited for, since it had spent `begun`: no matter who else works."""
    return sum(os.times()[:4]) - begun


def _cpu_seconds(process: int) -> float:
    """Of a process and of those it waited for (proc(5), fields 14 to 17 of stat)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def drawn(root: Path, folders: Sequence[str], seed: int) -> Iterator[Mutant]:
    """Mutants at random without end of kinds: each kind in turn, its places in random order, one change a place."""
    rng, by_kind, used = random.Random(seed), collections.defaultdict(list), set()
    for folder in folders:
        for path in sorted((root / "eeg2text_jax" / folder).glob("*.py")):
            if path.stem not in LEFT_OUT:
                for mutant in mutants(root, str(path.relative_to(root))):
                    by_kind[mutant.kind].append(mutant)
    for places in by_kind.values():
        rng.shuffle(places)
    while by_kind:
        for kind in rng.sample(sorted(by_kind), len(by_kind)):
            while places := by_kind[kind]:
                mutant = places.pop()
                place = (mutant.module, mutant.start)
                if place not in used and mutant.compiles((root / mutant.module).read_bytes()):
                    used.add(place)
                    yield mutant
                    break
            else:
                del by_kind[kind]


def wilson(hits: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """A 95 % confidence interval of a share."""
    share = hits / total
    middle = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return (middle - half) / (1 + z * z / total), (middle + half) / (1 + z * z / total)


def table(rows: Sequence[dict], root: Path | None = None) -> str:
    """Counts by folder and kind, the share that is caught, and each survivor."""
    gone = sum(row["outcome"] == "gone" for row in rows)
    rows = [row for row in rows if row["outcome"] != "gone"]
    lines = [f"{gone} survived on lines that are no longer there, and are not counted", ""] if gone else []
    for name, key in (("folder", lambda row: row["module"].split("/")[1]), ("kind", lambda row: row["kind"])):
        counts = collections.defaultdict(lambda: [0, 0])
        for row in rows:
            counts[key(row)][0] += 1
            counts[key(row)][1] += row["outcome"] != "survived"
        lines += [f"{name:20} mutants caught"] + [f"{k:20} {n:7} {c:6}" for k, (n, c) in sorted(counts.items())] + [""]
    left = [row for row in rows if row["outcome"] == "survived"]
    lines += [f"{row['module']}:{row['line']}: {row['kind']}\n{row['diff']}" for row in left]
    if rows:
        low, high = wilson(len(rows) - len(left), len(rows))
        share = f"{1 - len(left) / len(rows):.1%} (95 % interval {low:.1%} to {high:.1%})"
        lines.append(f"{len(rows)} mutants, {len(rows) - len(left)} caught: {share}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folders", default=FOLDERS)
    parser.add_argument("--seconds", type=float, default=120, help="CPU-seconds of tests for one mutant")
    parser.add_argument("--again", action="store_true", help="run the survivors once more, on the last commit")
    parser.add_argument("--table", action="store_true", help="run nothing")
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.exists() else []
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True)
    commit = head.stdout.strip() if options.again or not rows else rows[0]["commit"]
    if not options.table:
        with tempfile.TemporaryDirectory() as folder:
            rows = run(Bench(Path(folder), commit), commit, rows, options)
    print(table(rows))
    return 0


def moved(mutant: Mutant, commit: str, root: Path) -> Mutant | None:
    """A mutant of an older commit where its lines are now; None if they are not there."""
    shown = subprocess.run(["git", "show", f"{commit}:{mutant.module}"], cwd=ROOT, capture_output=True, check=True)
    old, new = (source.splitlines(keepends=True) for source in (shown.stdout, (root / mutant.module).read_bytes()))
    first = mutant.line - 1
    changed = old[first : first + 1 + mutant.before.count("\n")]
    places = [n for n in range(len(new)) if new[n : n + len(changed)] == changed]
    if not places:
        return None
    now = min(places, key=lambda n: abs(n - first))
    shift = sum(map(len, new[:now])) - sum(map(len, old[:first]))
    return dataclasses.replace(mutant, line=now + 1, start=mutant.start + shift, end=mutant.end + shift)


def run(bench: Bench, commit: str, rows: list[dict], options: argparse.Namespace) -> list[dict]:
    """Judges what is missing, or `--again` what survived, and keeps each row as soon as it is known."""
    if options.again:
        todo = [(n, row) for n, row in enumerate(rows) if row["outcome"] == "survived"]
    else:
        todo = list(
            zip(range(options.count), drawn(bench.root, options.folders.split(","), options.seed), strict=False)
        )
    fields = [field.name for field in dataclasses.fields(Mutant)]
    for place, found in todo[0 if options.again else len(rows) :]:
        mutant = found
        if options.again:
            now = moved(Mutant(**{name: found[name] for name in fields}), found["commit"], bench.root)
            if now is None:
                rows[place]["outcome"] = "gone"
                print(
                    f"{place + 1}: gone {found['module']}:{found['line']}, its line is not there any more", flush=True
                )
                continue
            mutant = now
        source = (bench.root / mutant.module).read_text().splitlines()
        after = mutant.applied((bench.root / mutant.module).read_bytes()).decode().splitlines()
        diff = "\n".join(list(difflib.unified_diff(source, after, lineterm="", n=0))[2:])
        row = {**dataclasses.asdict(mutant), **bench.judge(mutant, options.seconds), "diff": diff, "commit": commit}
        rows[place : place + 1] = [row]
        options.results.with_suffix(".part").write_text("".join(json.dumps(row) + "\n" for row in rows))
        shutil.move(options.results.with_suffix(".part"), options.results)
        print(f"{place + 1}: {row['outcome']} {mutant.module}:{mutant.line} {mutant.kind} ({row['by']}), "
              f"{row['files']} of {row['of']} files, {row['seconds']} s", flush=True)  # fmt: skip
    return rows


if __name__ == "__main__":
    sys.exit(main())
