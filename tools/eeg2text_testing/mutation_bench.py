"""A copy of the tree with a change, in which tests run in processes that are forked from one that imported much."""

import collections
import compileall
import itertools
import json
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

from eeg2text_testing.mutation import Mutant
from eeg2text_testing.related_tests import Related

ROOT = Path(__file__).parents[2]
HANGS = 60.0, 1800.0  # CPU-seconds, and seconds, of one test without an end, beyond which the mutant hangs
QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # plugins that libraries have imported already
FIRST = 6  # files of tests in the first process for a mutant; then twice as many


class Recorder:
    """A plugin of pytest: chooses and orders tests, and writes down what each came to and its CPU-seconds."""

    def __init__(self, files: Sequence[str], tests: set[str], log: Path, seconds: float):
        self.files, self.tests, self.log, self.seconds = list(files), tests, log.open("a", buffering=1), seconds

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
        try:
            return (yield)
        finally:
            self.log.write(json.dumps({"took": item.nodeid, "seconds": _spent(begun)}) + "\n")


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

    def judge(self, mutant: Mutant, seconds: float, first: Sequence[str] = ()) -> dict:
        """What came of a mutant: `outcome` (caught, hung, survived), `by` which test, numbers of tests, seconds.

        `first` are tests that run before all others.
        """
        place, begun = self.root / mutant.module, _spent(0.0)
        related = self.related.files(mutant.module)
        cuts = [0, *(FIRST * (2**k - 1) for k in range(1, 12))]
        plan = [(related[i:j], []) for i, j in itertools.pairwise(cuts) if related[i:j]]  # a process each
        if first:
            plan.insert(0, (sorted({test.split("::")[0] for test in first}), list(first)))
        source = place.read_bytes()
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

    def _passes(self, test: str) -> bool:
        name = test.removesuffix(" (import)")
        if name not in self.sound:
            self.sound[name] = self.tested([name.split("::")[0]], 600, [name])["outcome"] == "survived"
        return self.sound[name]

    def _log(self) -> list[dict]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def tested(self, files: Sequence[str], seconds: float, tests: Sequence[str] = ()) -> dict:
        """Runs tests of files, all of them if none is named, until one fails."""
        self.log.unlink(missing_ok=True)
        child = os.fork()
        if not child:
            self._run(files, seconds, tests)
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

    def _run(self, files: Sequence[str], seconds: float, tests: Sequence[str]) -> None:
        status = 70
        try:
            os.setsid()
            os.chdir(self.root)
            for name in [name for name in sys.modules if name.startswith("eeg2text_")]:
                del sys.modules[name]  # the copy has its own, and what tests/conftest.py imports may be changed since
            silent = os.open(self.log.with_suffix(".out"), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            for descriptor in (0, 1, 2):
                os.dup2(silent, descriptor)
            recorder = Recorder(files, set(tests), self.log, seconds)
            status = int(pytest.main(["-x", "-p", "no:cacheprovider", *QUIET, *files], plugins=[recorder]))
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
