"""Damages one file of a workdir at a time and goes on: the file is refused by its name, or the end has the same bytes.

python tools/mutate_workdirs.py /tmp/mutations [--count 300] [--seed 0] [--first 0]

Each file of a finished run, of one that was trained and of one that was killed while training is cut, emptied,
exchanged with that of another run, or has a byte flipped. Then the run goes on (`run`, `decode`, `train`). Never may it
end with another result. Exit status 1 where it does, or where a refusal does not name the file.
"""

import argparse
import collections
import functools
import itertools
import json
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from eeg2text_jax import cli
from eeg2text_jax.errors import UserError
from eeg2text_testing.forked_runs import LAST, TRACEBACK, Forked, arguments, differing, prepare, what_counts

COMMANDS = {"finished": "run", "trained": "decode", "killed": "train"}  # what goes on from each state


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


MUTATIONS: tuple[Callable[[Path, Path, random.Random], None], ...] = (cut, emptied, exchanged, flipped)


class Mutations:
    """The three states of a run, another run's, and what every end must look like."""

    def __init__(self, out: Path):
        self.out, self._number = out, itertools.count()
        self.ends: dict[str, dict[str, str]] = {}
        kept = out / "ends.json"
        if kept.exists():
            self.ends = json.loads(kept.read_text())
            return
        for name, lr in (("", 0.001), ("other_", 0.002)):
            self._make_states(name, lr)
        for state, command in COMMANDS.items():
            unharmed = out / "unharmed"
            shutil.copytree(out / state, unharmed)
            self._done(self._start(command, unharmed))
            self.ends[state] = what_counts(unharmed, self._log())
            shutil.rmtree(unharmed)
        kept.write_text(json.dumps(self.ends))

    def _make_states(self, name: str, lr: float) -> None:
        work = self.out / f"{name}killed"
        half = self._start("train", work, lr=lr)
        while not (work / "checkpoints/step_12").exists() and not half.ended():
            time.sleep(0.001)
        half.kill()
        trained, finished = (self.out / f"{name}{state}" for state in ("trained", "finished"))
        shutil.copytree(work, trained)
        self._done(self._start("train", trained, lr=lr))
        shutil.copytree(trained, finished)
        self._done(self._start("run", finished, lr=lr))

    def _start(self, command: str, workdir: Path, lr: float = 0.001) -> Forked:
        argv = [command, *arguments(optim__lr=lr), f"--workdir={workdir}"]
        return Forked(functools.partial(cli.main, argv), self._log())

    def _done(self, run: Forked) -> None:
        if run.wait():
            raise SystemExit(run.output()[-3000:])

    def _log(self) -> Path:
        return self.out / f"log_{next(self._number)}"

    def cases(self) -> list[tuple[str, str, Callable[[Path, Path, random.Random], None]]]:
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
        folder = sorted((self.out / state / name).parent.iterdir())
        place = folder.index(self.out / state / name)
        others = sorted(path for path in other.parent.iterdir() if path.is_file())
        return others[min(place, len(others) - 1)]

    def _compare(self, expected: dict[str, str], work: Path, checkpoint: bool) -> str:
        try:
            different = differing(expected, what_counts(work, self._log(), checkpoint=checkpoint))
        except UserError as error:
            return f"unreadable: {error}"
        return f"another result: {different}" if different else "same"

    def attempt(self, state: str, name: str, mutation: Callable[[Path, Path, random.Random], None], seed: int) -> str:
        """What came of one mutation: "refused", "same" or what is wrong."""
        work = self.out / "mutated"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(self.out / state, work)
        before = (work / name).read_bytes()
        mutation(work / name, self.counterpart(state, name), random.Random(seed))
        if (work / name).read_bytes() == before:
            shutil.rmtree(work)
            return "unchanged"
        run = self._start(COMMANDS[state], work)
        status, said = run.wait(), run.output()
        told = [line for line in said.splitlines() if line.startswith("eeg2text ")]
        if TRACEBACK in said or status not in (0, 2):
            verdict = f"status {status}: {said[-1500:]}"
        elif status == 2:
            verdict = "refused" if len(told) == 1 and Path(name).name in told[0] else f"not named: {said[-500:]}"
        else:
            read = state != "finished"  # where the checkpoint has no part in the result
            expected = {end: digest for end, digest in self.ends[state].items() if read or end != LAST}
            verdict = self._compare(expected, work, read)
        shutil.rmtree(work)
        return verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for the runs; emptied first, unless they are there")
    parser.add_argument("--count", type=int, default=300, help="mutations, drawn from all there are")
    parser.add_argument("--first", type=int, default=0, help="the number of the one to begin with")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not (options.out / "ends.json").exists():
        shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True, exist_ok=True)
    prepare(options.out / "cache")
    begun = time.monotonic()
    mutations = Mutations(options.out)
    cases = mutations.cases()
    print(f"{len(cases)} mutations there are; the runs took {time.monotonic() - begun:.0f} s", flush=True)
    random.Random(options.seed).shuffle(cases)
    counts: collections.Counter[tuple[str, str, str]] = collections.Counter()
    failures = 0
    for seed, (state, name, mutation) in list(enumerate(cases))[options.first :]:
        if sum(counts.values()) >= options.count:
            break
        verdict = mutations.attempt(state, name, mutation, seed)
        if verdict == "unchanged":  # of an empty file, or one that both runs have
            continue
        counts[state, mutation.__name__, verdict.split(":")[0]] += 1
        if verdict not in ("refused", "same"):
            failures += 1
            print(f"FAILED: {state}, {name} {mutation.__name__}: {verdict}", flush=True)
        if sum(counts.values()) % 10 == 0:
            done = f"{sum(counts.values())} done, to number {seed}"
            print(f"{done}, in {time.monotonic() - begun:.0f} s, {failures} failures", flush=True)
    for key, count in sorted(counts.items()):
        print(f"{count:4} {', '.join(key)}")
    print(f"{sum(counts.values())} mutations, {failures} failures, {time.monotonic() - begun:.0f} s")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
