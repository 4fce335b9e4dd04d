"""The trap of a fixed order over days, shown and answered: made-up recordings, a decoder by nearest neighbors, audits.

    python tools/calibrations/order_trap.py --seeds 20
    python tools/calibrations/order_trap.py --show

Two readers read the same sentences on four days; the last day is tested. All recordings share a drift that is a
function of the place in the run. For each design the table counts the seeds whose verdict is *uses EEG* with the
control `shuffled` alone, those that are *beyond its time* with the controls of time, and those in which `repeats`
claims content within subjects. `--show` prints the verdicts and the answer of `repeats` of one seed of three designs.
"""

import argparse

import numpy as np
from time_trap import copied, rows_of

from eeg2text_jax.data.clock import Clock
from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.auditing.result import AuditResult
from eeg2text_jax.instrument.auditing.verdict import Time, Verdict
from eeg2text_jax.runs.repeats import WITHIN, Repeats, repeat_lines, repeats
from eeg2text_jax.training.conditions._donors import same_place_texts

TEXTS, DAYS, READERS, F, WORDS = 150, 4, 2, 32, 300
TIME = ("clock", "nearest_in_time", "same_place", "neighbor")
# design -> same order on all days, size of the drift, half a period of its fastest part in places, size of the words
DESIGNS = {
    "no words, drift of half a run": (True, 3.0, 75.0, 0.0),
    "no words, drift of 40 places": (True, 3.0, 40.0, 0.0),
    "no words, drift of 15 places": (True, 3.0, 15.0, 0.0),
    "no words, drift of 5 places": (True, 3.0, 5.0, 0.0),
    "words in random order": (False, 0.5, 75.0, 1.5),
    "words, drift of half a run": (True, 1.0, 75.0, 1.0),
    "words, drift of 40 places": (True, 1.0, 40.0, 1.0),
}
SHOWN = ("no words, drift of half a run", "words, drift of half a run", "words in random order")


def made(design: str, seed: int) -> DataFile:
    same, drift, period, words = DESIGNS[design]
    rng = np.random.default_rng(seed)
    vocabulary, latent = [f"w{k}" for k in range(WORDS)], rng.normal(size=(WORDS, F))
    sentences = [rng.choice(WORDS, rng.integers(4, 9), replace=False) for _ in range(TEXTS)]
    turns, phase = rng.uniform(0.25, 1, (8, F)) * np.pi / period, rng.uniform(0, 2 * np.pi, (8, F))
    rows, features = [], []
    for reader in range(READERS):
        for day in range(DAYS):
            begin = rng.uniform(25, 600)
            walk = 0.1 * np.cumsum(rng.normal(size=(TEXTS, F)), 0)
            for place, k in enumerate(np.arange(TEXTS) if same else rng.permutation(TEXTS)):
                pattern = latent[sentences[k]]
                slow = drift * np.cos(place * turns + phase).sum(0) / 2 + walk[place]
                features.append(words * pattern + slow + rng.normal(size=pattern.shape))
                text = " ".join(vocabulary[w] for w in sentences[k])
                rows.append((f"S{reader}", "read", text, int(k), f"sub-{reader}_ses-{day}", begin))
                begin += 0.4 * len(pattern) + 1.8 + 0.05 * rng.random()
    subject, task, text, index, recording, onset = (list(column) for column in zip(*rows, strict=True))
    blank = [np.nan] * len(rows)
    clock = Clock.of({"recording": recording, "onset": onset, "duration": blank, "order": [-1] * len(rows)})
    offsets = np.concatenate([[0], np.cumsum([len(f) for f in features])])
    columns = (np.array(column, object) for column in (text, subject, task))
    whole = np.concatenate(features).astype(np.float32)
    return DataFile("made up", whole, offsets, *columns, np.array(index), "made up", {}, clock=clock)


def answers(design: str, seed: int) -> tuple[AuditResult, AuditResult, Repeats]:
    """The audit with the usual control, the one with the controls of time, and the repeats within subjects."""
    data = made(design, seed)
    day = np.array([int(name[-1]) for name in data.clock.recording])
    parts = train, _, test = [np.flatnonzero(np.isin(day, days)) for days in ((0, 1), (2,), (3,))]
    texts_of = copied(data, parts, seed) | {"same_place": same_place_texts(data, train, test)[0]}
    rows = {name: list(rows_of(data, test, texts, name)) for name, texts in texts_of.items()}
    usual = audit(rows["eeg"], {"shuffled": rows["shuffled"]})
    timed = audit(rows["eeg"], {name: rows[name] for name in ("shuffled", *TIME)})
    (within,) = (found for found in repeats(data) if found.scope == WITHIN)
    return usual, timed, within


def counted(usual: AuditResult, timed: AuditResult, within: Repeats) -> tuple[bool, bool, bool]:
    beyond = timed.verdict.base is Verdict.USES_EEG and timed.verdict.time is Time.BEYOND
    return usual.verdict.base is Verdict.USES_EEG, beyond, within.claim


def show() -> None:
    for design in SHOWN:
        usual, timed, within = answers(design, 0)
        print(f"\n=== {design} ===\nwith shuffled alone: {usual.verdict.headline}")
        print(f"with the controls of time: {timed.verdict.headline}")
        for comparison in timed.comparisons:
            print(f"  against {comparison.contrast.control}: {comparison.contrast.effect:+.2f}, {comparison.verdict}")
        print("\n".join(repeat_lines([within])), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", default="", help="designs whose names begin so")
    parser.add_argument("--show", action="store_true", help="print the answers of one seed of three designs")
    flags = parser.parse_args()
    seeds, designs = flags.seeds, [name for name in DESIGNS if name.startswith(flags.only)]
    if flags.show:
        return show()
    print("| design | uses EEG, usual control | beyond its time | claimed by repeats |\n| --- | --- | --- | --- |")
    for design in designs:
        counts = np.sum([counted(*answers(design, seed)) for seed in range(seeds)], axis=0)
        print(f"| {design} | " + " | ".join(f"{n} of {seeds}" for n in counts) + " |", flush=True)


if __name__ == "__main__":
    main()
