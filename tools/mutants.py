"""Mutation testing: small changes of our own code at random, one at a time; how many do the tests that relate notice?

    python tools/mutants.py RESULTS.jsonl [--count 200] [--seed 0] [--folders training,decoding,...] [--seconds 120]
    python tools/mutants.py RESULTS.jsonl --changes CHANGES.jsonl  # changes that somebody wrote by hand
    python tools/mutants.py RESULTS.jsonl --again     # those that survived, by the tests as they are now
    python tools/mutants.py RESULTS.jsonl --table     # what was found so far

Each kind of change (`eeg2text_testing.mutation`) is drawn equally often, each of its places with equal probability.
Related tests are those that import the module, directly or over others, files nearest to it first. They run until one
fails or `--seconds` of CPU time are spent. A test that catches a change must pass without it. A mutant that hangs is
caught. The tree is a copy of the last commit; the command resumes.

A line of CHANGES.jsonl has `file`, `old` (a text that is once in the file), `new`, and may have `tests`: names of tests
to run first ("tests/audit/test_rows.py::test_names", without parameters).

Unlike mutmut and cosmic-ray, this draws a sample by a seed, and a process that has imported the libraries, and nothing
of ours, forks for each mutant: importing takes ten seconds.
"""

import argparse
import collections
import dataclasses
import difflib
import json
import math
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from eeg2text_testing.mutation import Mutant, mutants, written
from eeg2text_testing.mutation_bench import Bench

ROOT = Path(__file__).parents[1]
FOLDERS = "training,training/conditions,decoding,data/splits,instrument/auditing,judge,base/stores,runs"
# What they hold is words and pictures, or the pace of a machine. `judge/session.py` has `write_curves`, a picture, too.
LEFT_OUT = ("report", "_tracker_process")


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
    parser.add_argument("--changes", type=Path, help="changes written by hand, in place of a draw")
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
    if not (root / mutant.module).exists():
        return None
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
    elif options.changes:
        todo = list(enumerate(written(bench.root, options.changes)))
    else:
        chosen = drawn(bench.root, options.folders.split(","), options.seed)
        todo = list(zip(range(options.count), chosen, strict=False))
    lines = options.changes.read_text().splitlines() if options.changes else []
    first = [json.loads(line).get("tests", []) for line in lines]
    fields = [field.name for field in dataclasses.fields(Mutant)]
    for place, found in todo[0 if options.again else len(rows) :]:
        mutant = found
        if options.again:
            now = moved(Mutant(**{name: found[name] for name in fields}), found["commit"], bench.root)
            if now is None:
                rows[place]["outcome"] = "gone"
                said = f"gone {found['module']}:{found['line']}, its line is not there any more"
                print(f"{place + 1}: {said}", flush=True)
                continue
            mutant = now
        source = (bench.root / mutant.module).read_text().splitlines()
        after = mutant.applied((bench.root / mutant.module).read_bytes()).decode().splitlines()
        diff = "\n".join(list(difflib.unified_diff(source, after, lineterm="", n=0))[2:])
        judged = bench.judge(mutant, options.seconds, first[place] if first else [])
        row = {**dataclasses.asdict(mutant), **judged, "diff": diff, "commit": commit}
        rows[place : place + 1] = [row]
        options.results.with_suffix(".part").write_text("".join(json.dumps(row) + "\n" for row in rows))
        shutil.move(options.results.with_suffix(".part"), options.results)
        print(f"{place + 1}: {row['outcome']} {mutant.module}:{mutant.line} {mutant.kind} ({row['by']}), "
              f"{row['run']} of {row['of']} tests, {row['seconds']} s", flush=True)  # fmt: skip
    return rows


if __name__ == "__main__":
    sys.exit(main())
