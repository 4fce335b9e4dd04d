"""Damages one file of a workdir and goes on: the file is refused by its name, or the end has the same bytes."""

import ctypes
import itertools
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from eeg2text_jax.base.errors import UserError
from eeg2text_testing.fault_cases import JUDGE, flags
from eeg2text_testing.fault_series import Series
from eeg2text_testing.forked_runs import LAST, TRACEBACK, Forked, arguments, differing, what_counts

# What goes on from each state of a workdir; of the last two, the judge's whole and half of a run's training.
COMMANDS = {"finished": "run", "trained": "decode", "judged": "judge", "killed": "train"}
CAPABILITIES = 0x20080522  # version 3 of capset(2)

Mutation = Callable[[Path, Path, random.Random], None]


def cut(path: Path, other: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path, other: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def exchanged(path: Path, other: Path, rng: random.Random) -> None:
    shutil.copyfile(other, path)


def flipped(path: Path, other: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def deleted(path: Path, other: Path, rng: random.Random) -> None:
    path.unlink()


def folder(path: Path, other: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def linked(path: Path, other: Path, rng: random.Random) -> None:
    """A link to the file, which lies elsewhere now."""
    elsewhere = Path(tempfile.mkdtemp()) / path.name
    shutil.move(path, elsewhere)
    path.symlink_to(elsewhere)


def dangling(path: Path, other: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


def unreadable(path: Path, other: Path, rng: random.Random) -> None:
    path.chmod(0)


def unwritable(path: Path, other: Path, rng: random.Random) -> None:
    path.parent.chmod(0o500)


MUTATIONS: tuple[Mutation, ...] = (
    cut, emptied, exchanged, flipped, deleted, folder, linked, dangling, unreadable, unwritable,
)  # fmt: skip


def mutate(series: Series, count: int) -> None:
    """Draws mutations from all there are, and counts what each state and kind came to."""
    runs = Mutated(series)
    cases = runs.cases()
    print(f"there are {len(cases)} mutations", flush=True)
    series.rng.shuffle(cases)
    done = 0
    for state, name, mutation in cases:
        if done >= count:
            return
        verdict = runs.attempt(state, name, mutation)
        if verdict == "unchanged":  # of an empty file, or one that both runs have
            continue
        done += 1
        kind = verdict.split(":")[0]
        series.counts[COMMANDS[state], state, mutation.__name__, kind] += 1
        series.expect(verdict in ("refused", "same"), f"{state}, {name} {mutation.__name__}: {verdict}")
        if done % 10 == 0:
            print(f"{done} mutations, {len(series.failures)} failures", flush=True)


class Mutated:
    """States of a run and of a judge, another run's, and what every end must look like."""

    def __init__(self, series: Series):
        self.series, self.out = series, series.out / "states"
        self.out.mkdir()
        self.ends: dict[str, dict[str, str]] = {}
        for other, lr in (("", 0.001), ("other_", 0.002)):
            self._make_states(other, lr)
        for state in COMMANDS:
            unharmed = self.out / "unharmed"
            shutil.copytree(self.out / state, unharmed)
            self._done(self._start(state, unharmed))
            self.ends[state] = what_counts(unharmed, series.out / "log_of_looking")
            shutil.rmtree(unharmed)

    def _make_states(self, other: str, lr: float) -> None:
        work = self.out / f"{other}killed"
        half = self._start("killed", work, lr)
        while not (work / "checkpoints/step_12").exists() and not half.ended():
            pass
        half.kill()
        trained, finished = (self.out / f"{other}{state}" for state in ("trained", "finished"))
        shutil.copytree(work, trained)
        self._done(self._start("killed", trained, lr))
        shutil.copytree(trained, finished)
        self._done(self._start("finished", finished, lr))
        self._done(self._start("judged", self.out / f"{other}judged", lr))

    def _start(self, state: str, workdir: Path, lr: float = 0.001, harmed: bool = False) -> Forked:
        made = flags("judge.py:checkpoint=toy", **JUDGE, optim__lr=(100 * lr,)) if state == "judged" else None
        argv = [COMMANDS[state], *(made or arguments(optim__lr=lr)), f"--workdir={workdir}"]
        return self.series.command(argv, without_privileges if harmed else None)

    def _done(self, run: Forked) -> None:
        if run.wait():
            raise SystemExit(run.output()[-3000:])

    def cases(self) -> list[tuple[str, str, Mutation]]:
        """(state, file, mutation): all there are."""
        found = []
        for state in COMMANDS:
            names = sorted(str(p.relative_to(self.out / state)) for p in (self.out / state).rglob("*") if p.is_file())
            found += itertools.product([state], names, MUTATIONS)
        return found

    def counterpart(self, state: str, name: str) -> Path:
        """The file of the other run; of those with names by chance, the one in the same folder nearest in order."""
        other = self.out / f"other_{state}" / name
        if other.exists():
            return other
        beside = sorted((self.out / state / name).parent.iterdir())
        others = sorted(path for path in other.parent.iterdir() if path.is_file())
        return others[min(beside.index(self.out / state / name), len(others) - 1)]

    def attempt(self, state: str, name: str, mutation: Mutation) -> str:
        """What came of one mutation: "refused", "same", "unchanged" or what is wrong."""
        work = self.out / "mutated"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(self.out / state, work)
        before = (work / name).read_bytes()
        mutation(work / name, self.counterpart(state, name), self.series.rng)
        content_only = mutation in (cut, emptied, exchanged, flipped)
        if content_only and (work / name).read_bytes() == before:
            return "unchanged"
        run = self._start(state, work, harmed=True)
        status, said = run.wait(), run.output()
        told = [line for line in said.splitlines() if line.startswith("eeg2text ")]
        if TRACEBACK in said or status not in (0, 2):
            return f"status {status}: {said[-1500:]}"
        if status == 2:
            # A file that is gone may be missed by its folder, and one that cannot be written is its folder's fault.
            path = work / name
            names = [path.name] if content_only else [path.name, path.parent.name]
            named = len(told) == 1 and any(part in told[0] for part in names)
            return "refused" if named else f"not named: {said[-500:]}"
        read = state != "finished"  # where the checkpoint has no part in the result
        expected = {end: digest for end, digest in self.ends[state].items() if read or end != LAST}
        try:
            different = differing(expected, what_counts(work, self.series.out / "log_of_looking", checkpoint=read))
        except UserError as error:
            return f"unreadable: {error}"
        return f"another result: {different}" if different else "same"


def without_privileges(command: Callable[[], int]) -> int:
    """The command without root's right to pass over permissions (capset(2)); nothing changes for other users."""
    if os.geteuid() == 0:
        header, nothing = (ctypes.c_uint32 * 2)(CAPABILITIES, 0), (ctypes.c_uint32 * 6)()
        if ctypes.CDLL(None, use_errno=True).capset(header, nothing):
            raise OSError(ctypes.get_errno(), "capset")
    return command()
