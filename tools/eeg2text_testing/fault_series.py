"""Interrupts a command in a named stage, again and again, then leaves it alone: its end must have the same bytes."""

import collections
import contextlib
import errno
import fcntl
import functools
import itertools
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from eeg2text_jax.base.stores import mirror
from eeg2text_jax.commands import cli
from eeg2text_testing.fault_cases import Case, Place, met, place, wait_for
from eeg2text_testing.forked_runs import TRACEBACK, Forked, differing

SHARE = 0.9  # of a stage's time; later faults would come too late where the machine is faster than before
SHORT = 0.05  # seconds into a save, and into a stage that was too short to be seen
BEAT, PATIENCE = 0.5, 3.0  # of leases, in seconds, so that a suspended holder counts as dead soon
NO_START = (0, 2, -9, -15, 143)  # statuses of a start that was interrupted, or ended before

# Faults, how often each is drawn. The last two hold for every start of a command, which is killed besides.
FAULTS = {"SIGKILL": 6, "SIGTERM": 3, "second start": 1, "suspended": 1, "no locks": 1, "clock steps": 1}


def no_locks(command: Callable[[], int]) -> int:
    """The command on a file system that refuses locks."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    fcntl.flock = refuse
    return command()


def clock_steps(command: Callable[[], int]) -> int:
    """The command while somebody sets the clock by up to an hour, back and forth."""
    true, rng = time.time, random.Random(0)
    steps = [rng.uniform(-3600, 3600) for _ in range(1000)]
    time.time = lambda: true() + steps[int(true() * 2) % len(steps)]
    return command()


AROUND = {"no locks": no_locks, "clock steps": clock_steps}


class Series:
    """Counts what was done to which command, and what went wrong."""

    def __init__(self, out: Path, seed: int):
        self.out, self.rng = out, random.Random(seed)
        self.counts: collections.Counter[tuple[str, str, str, str]] = collections.Counter()
        self.failures: list[str] = []
        self.ends: dict[tuple[str, str], dict[str, str]] = {}
        self.spans: dict[tuple[str, str], dict[str, float]] = {}
        self._number = itertools.count()

    def command(self, argv: list[str], around: Callable[[Callable[[], int]], int] | None = None) -> Forked:
        def begin() -> int:
            mirror.BEAT, mirror.PATIENCE = BEAT, PATIENCE
            return (around or (lambda command: command()))(functools.partial(cli.main, argv))

        return Forked(begin, self.out / f"log_{next(self._number)}")

    def expect(self, holds: bool, what: str, forked: Forked | None = None) -> bool:
        if not holds:
            tail = f"\n{forked.output()[-1500:]}" if forked else ""
            self.failures.append(what + tail)
            print(f"FAILED: {what}{tail}", flush=True)
        return holds

    def finish(self, case: Case, where: Place, expected: dict[str, str], what: str) -> None:
        """Leaves a command alone, and holds its end against `expected`."""
        last = self.command(case.command(where.workdir))
        if self.expect(last.wait() == 0 and TRACEBACK not in last.output(), f"{what}: the last start failed", last):
            different = differing(expected, where.content())
            self.expect(not different, f"{what}: {different} differ from the command that was left alone")

    def measure(self, case: Case, store: str) -> None:
        """Runs a command that nothing happens to: its end, and how long each stage takes once all is compiled."""
        reference = store if case.moves else "folder"
        if (case.name, reference) not in self.ends:
            self.ends[case.name, reference], _ = self._alone(case, reference)
        expected = self.ends[case.name, store] = self.ends[case.name, reference]
        found, self.spans[case.name, store] = self._alone(case, store)
        different = differing(expected, found)
        self.expect(not different, f"{case.name}, left alone on {store} and {reference}: {different} differ")

    def _alone(self, case: Case, store: str) -> tuple[dict[str, str], dict[str, float]]:
        with place(store, self.out) as where:
            since, begins = time.time(), []
            run = self.command(case.command(where.workdir))
            for stage, _ in case.stages:
                wait_for(where, case, stage, since, run)
                begins.append(time.time())
            if run.wait():
                raise SystemExit(f"{case.name} on {store}, left alone:\n{run.output()[-3000:]}")
            spans = [max(end - begin, SHORT) for begin, end in itertools.pairwise([*begins, time.time()])]
            timed = {name: SHARE * span for (name, _), span in zip(case.stages, spans, strict=True)}
            return where.content(), timed | ({"saving": SHORT} if "saving" in timed else {})

    def attempt(self, case: Case, store: str, stages: list[str]) -> None:
        """One workdir: a fault in each of `stages`, then the command is left alone."""
        key = (case.name, store)
        with place(store, self.out) as where:
            for number, stage in enumerate(stages):
                fault = self.rng.choices(list(FAULTS), list(FAULTS.values()))[0]
                since = time.time()
                run = self.command(case.command(where.workdir), AROUND.get(fault))
                wait_for(where, case, stage, since, run)
                time.sleep(self.rng.uniform(0, self.spans[key][stage]))
                found, early = met(where, case, since), run.ended()
                what = f"{case.name} on {store}, {fault} while {found}"
                self._strike(fault, run, case, where, what)
                self.counts[case.name, store, fault, "too late" if early else found] += 1
                if case.name == "score":
                    self._check_whole(where, key, what)
                print(f"{what}: status {run.wait()}{' (too late)' if early else ''}", flush=True)
                if number % 2:
                    where.forget()
            self.finish(case, where, self.ends[key], f"{case.name} on {store}")
        for log in self.out.glob("log_*"):
            with contextlib.suppress(OSError):
                shutil.rmtree(log) if log.is_dir() else log.unlink()

    def _strike(self, fault: str, run: Forked, case: Case, where: Place, what: str) -> None:
        if fault in ("second start", "suspended"):
            self._second(fault == "suspended", run, case, where, what)
        else:
            run.kill(signal.SIGTERM if fault == "SIGTERM" else signal.SIGKILL)
            self.expect(run.wait() in NO_START, f"{what}: status {run.wait()}", run)
        self.expect(TRACEBACK not in run.output(), f"{what}: a traceback", run)

    def _second(self, suspended: bool, run: Forked, case: Case, where: Place, what: str) -> None:
        """Another start beside one that works, or is suspended: at any time one of them writes."""
        if suspended and not run.ended():
            run.send(signal.SIGSTOP)
        other = self.command(case.command(where.workdir))
        status = other.wait()
        run.send(signal.SIGCONT)
        statuses = sorted((status, run.wait()))
        said = f"{what}: statuses {status} and {run.wait()}"
        self.expect(statuses in ([0, 2], [0, 0]), said, other if status else run)
        self.expect(TRACEBACK not in other.output(), f"{what}: a traceback of the second start", other)
        refused = other if status == 2 else run if run.wait() == 2 else None
        if refused:
            said = refused.output()
            named = any(word in said for word in ("is in use by", "took it over", "took the lease"))
            self.expect(named, f"{what}: the refused one does not say who is at work", refused)

    def _check_whole(self, where: Place, key: tuple[str, str], what: str) -> None:
        found = where.content() if key[1] == "folder" else {}
        broken = [name for name, digest in found.items() if name[0] != "." and self.ends[key].get(name) != digest]
        self.expect(not broken, f"{what}: half-written {broken}")

    def table(self) -> str:
        lines = [f"{'command':12} {'store':7} {'fault':13} {'stage':20} times"]
        lines += [f"{a:12} {b:7} {c:13} {d:20} {n:5}" for (a, b, c, d), n in sorted(self.counts.items())]
        return "\n".join(lines)
