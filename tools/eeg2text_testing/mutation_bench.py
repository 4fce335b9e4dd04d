"""A copy of the tree with a change, in which tests run in processes that are forked from one that imported much."""

import collections
import compileall
import itertools
import json
import math
import os
import py_compile
import runpy
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import pytest

from eeg2text_testing.line_tests import START, LineTests, LineWatch
from eeg2text_testing.mutation import Mutant
from eeg2text_testing.related_tests import Related

ROOT = Path(__file__).parents[2]
HANGS = 60.0, 1800.0  # CPU-seconds, and seconds, of one test without an end, beyond which the mutant hangs
QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # plugins that libraries have imported already
CHUNK = 6.0  # CPU-seconds of tests in the first process for a mutant; then three times as much
FIRST = 6  # files of tests in the first process for a mutant; then twice as many


class Recorder:
    """A plugin of pytest: chooses and orders tests, and writes down what each came to and its CPU-seconds."""

    def __init__(self, files: Sequence[str], tests: set[str], log: Path, seconds: float, watch: LineWatch | None):
        self.files, self.tests, self.watch = list(files), tests, watch
        self.log, self.seconds = log.open("a", buffering=1), seconds

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.log.write(json.dumps({"began": nodeid}) + "\n")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list) -> None:
        if self.tests:
            items[:] = [item for item in items if {item.nodeid, item.nodeid.split("[")[0]} & self.tests]
        items.sort(key=lambda item: self.files.index(item.nodeid.split("::")[0]))

    def pytest_collectreport(self, report) -> None:
        if report.failed:
            self.log.write(json.dumps({"failed": f"{report.nodeid} (import)"}) + "\n")

    def pytest_runtest_logreport(self, report) -> None:
        if report.failed:
            self.log.write(json.dumps({"failed": report.nodeid}) + "\n")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        begun = _spent(0.0)
        if begun > self.seconds:
            self.log.write(json.dumps({"spent": True}) + "\n")
            item.session.shouldstop = "the time is spent"
        if self.watch:
            self.watch.begin(item.nodeid)
        try:
            return (yield)
        finally:
            if self.watch:
                self.watch.begin("")
            self.log.write(json.dumps({"took": item.nodeid, "seconds": _spent(begun)}) + "\n")


class Bench:
    """A copy of the tree, in which tests are run by processes that are forked from this one."""

    def __init__(self, root: Path, commit: str, record: Path | None = None):
        self.root, self.log, self.sound, self.commit = root / "tree", root / "log.jsonl", {}, commit
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
        self.lines = LineTests(record, self.root) if record else None

    def judge(self, mutant: Mutant, seconds: float, line: int | None = None, first: Sequence[str] = ()) -> dict:
        """What came of a mutant: `outcome` (caught, hung, survived), `by` which test, numbers of tests, seconds.

        `line` is the line of the mutant at the commit whose tests were recorded; None if that is not known. `first` are
        tests that run before all others.
        """
        place, begun = self.root / mutant.module, _spent(0.0)
        source, plan = place.read_bytes(), self._plan(mutant.module, line)
        if first:
            plan.insert(0, (sorted({test.split("::")[0] for test in first}), list(first)))
        done, row = 0, {"outcome": "survived", "by": ""}
        try:
            for files, tests in plan:
                if row["outcome"] != "survived" or _spent(begun) > seconds:
                    break
                place.write_bytes(mutant.applied(source))
                row = self.tested(files, seconds - _spent(begun), tests)
                place.write_bytes(source)
                if row["outcome"] != "survived" and not self._passes(row["by"]):
                    row = {"outcome": "survived", "by": ""}  # the test fails anyway: it shows nothing
                done += len(tests or files)
        finally:
            place.write_bytes(source)
        return {**row, "run": done, "of": sum(len(tests or files) for files, tests in plan),
                "seconds": round(_spent(begun))}  # fmt: skip

    def _plan(self, module: str, line: int | None) -> list[tuple[list[str], list[str]]]:
        """What to run, a process each: files of tests, and tests of them; all tests where there are no names.

        Where tests of a line are recorded, they are first; then come related files that are not in it as they are.
        """
        related = self.related.files(module)
        parts = self.lines.files(module, line) if self.lines and line else []
        known = self.lines.by_file.keys() - set(self.lines.changed(self.commit)) if parts else set()
        other = [file for file in related if file not in known]
        cuts = [0, *(FIRST * (2**k - 1) for k in range(1, 12))]
        unknown = [(other[i:j], []) for i, j in itertools.pairwise(cuts) if other[i:j]]
        plan, limit, files, tests, cost = [], CHUNK, [], [], 0.0
        for part in parts:
            file = next(iter(part)).split("::")[0]
            cost += sum(part.values()) + (0.0 if file in files else START)
            files, tests = list(dict.fromkeys([*files, file])), [*tests, *part]
            if cost > limit:
                plan.append((files, tests))
                files, tests, cost, limit = [], [], 0.0, 3 * limit
        return [*plan, *([(files, tests)] if files else []), *unknown]

    def _passes(self, test: str) -> bool:
        """Whether a test passes on the tree as it is."""
        name = test.removesuffix(" (import)")
        if name not in self.sound:
            self.sound[name] = self.tested([name.split("::")[0]], 600, [name])["outcome"] == "survived"
        return self.sound[name]

    def recorded(self, file: str) -> dict:
        """A row of `LineTests`: every test of a file, and which lines of the package it runs."""
        found = self.tested([file], math.inf, watched=True)
        spent = {row["took"]: round(row["seconds"], 2) for row in self._log() if "took" in row}
        failed = [row["failed"] for row in self._log() if "failed" in row]
        lines = json.loads(self.log.with_suffix(".lines").read_text())
        return {"file": file, "commit": self.commit, **found, "failed": failed, "tests": spent, "lines": lines}

    def _log(self) -> list[dict]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def tested(self, files: Sequence[str], seconds: float, tests: Sequence[str] = (), watched: bool = False) -> dict:
        """Runs tests of files, all of them if none is named, until one fails."""
        self.log.unlink(missing_ok=True)
        child = os.fork()
        if not child:
            self._run(files, seconds, tests, watched)
        status = self._wait(child)
        lines = self._log()
        if not lines and status != 5:  # no test is collected
            said = self.log.with_suffix(".out").read_text()
            raise RuntimeError(f"no test was run (status {status}):\n{said[-3000:]}")
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

    def _run(self, files: Sequence[str], seconds: float, tests: Sequence[str], watched: bool) -> None:
        """The child: pytest in the copy."""
        status = 70
        try:
            os.setsid()
            os.chdir(self.root)
            for name in [name for name in sys.modules if name.startswith("eeg2text_")]:
                del sys.modules[name]  # the copy has its own, and what tests/conftest.py imports may be changed since
            silent = os.open(self.log.with_suffix(".out"), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            for descriptor in (0, 1, 2):
                os.dup2(silent, descriptor)
            watch = LineWatch(self.root, self.root.parent / "watched") if watched else None
            recorder = Recorder(files, set(tests), self.log, seconds, watch)
            arguments = [*([] if watched else ["-x"]), "-p", "no:cacheprovider", *QUIET, *files]
            status = int(pytest.main(arguments, plugins=[recorder]))
            if watch:
                lines = {module: {line: sorted(tests) for line, tests in found.items()}
                         for module, found in watch.lines().items()}  # fmt: skip
                self.log.with_suffix(".lines").write_text(json.dumps(lines))
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
