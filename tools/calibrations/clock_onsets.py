"""The clock arm where onsets begin anywhere: small networks trained on drift (or words) in blocks, a line a training.

    python tools/calibrations/clock_onsets.py FOLDER --seeds 20 [--design words] [--onsets Unix] [--first 0]

Onsets count from 0, from midnight and from 1970. The only controls of time are the arm trained on `clock` and
`nearest_in_time`; the line has the verdict and the content difference to each, the last lines count verdicts. Finished
trainings are skipped. `--onsets` takes one way to count.
"""

import argparse
import json
import shutil
from collections import Counter
from pathlib import Path

from eeg2text_jax import data as public
from eeg2text_jax.commands.cli import main as eeg2text
from eeg2text_jax.data.planted import SyntheticSpec, synthetic_samples
from eeg2text_jax.training.configuration import load_config

# first onset, and the step from a recording to the next
BEGINS = {"from 0": (0.0, 0.0), "of the day": (30_000.0, 4_321.5), "Unix": (1.7e9, 90_061.25)}
COLUMNS = ("features", "sentence", "subject", "task", "sentence_index", "recording", "duration")
SET = {"train.eval_every": 50, "decode.batch_size": 64,
       "grid.eval_conditions": '("eeg","shuffled","clock","nearest_in_time")'}  # fmt: skip


def write(design: str, begin: tuple[float, float], seed: int, path: Path) -> None:
    """Write the made-up recordings of configs/demo_blocks.py with other onsets."""
    spec = SyntheticSpec(**{**dict(load_config(f"demo_blocks:{design}").data.synthetic), "seed": seed})
    number: dict[str, int] = {}
    rows = []
    for sample in synthetic_samples(spec):
        place = number.setdefault(sample.recording, len(number))
        onset = sample.onset + begin[0] + begin[1] * place
        rows.append({name: getattr(sample, name) for name in COLUMNS} | {"onset": onset})
    public.write(path, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--design", choices=("drift", "words"), default="drift")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--onsets", choices=BEGINS, help="one way to count; without it all three")
    parser.add_argument("--first", type=int, default=0)
    flags = parser.parse_args()
    lines, verdicts = [], Counter()
    for seed in range(flags.first, flags.first + flags.seeds):
        for name, begin in BEGINS.items():
            if flags.onsets not in (None, name):
                continue
            work = flags.folder / f"{flags.design}_{name.replace(' ', '_')}_{seed}"
            if not (found := work.with_suffix(".json")).exists():
                shutil.rmtree(work, ignore_errors=True)
                work.mkdir(parents=True)
                write(flags.design, begin, seed, work / "own.h5")
                steps = {"train.steps": 100} if flags.design == "drift" else {}
                changes = {**SET, **steps, "data.source": work / "own.h5", "seed": seed}
                eeg2text(["run", f"--config=demo_blocks:{flags.design}", f"--workdir={work / 'run'}",
                          *(f"--config.{field}={value}" for field, value in changes.items())])  # fmt: skip
                shutil.copy(work / "run" / "audit.json", found)
                shutil.rmtree(work)
            judged = json.loads(found.read_text())
            effects = {one["contrast"]["control"]: one["contrast"]["effect"] for one in judged["comparisons"]}
            against = ", ".join(f"{effect:+.2f} against {control}" for control, effect in effects.items())
            verdicts[name, judged["headline"].partition(" (")[0]] += 1
            lines.append(f"{flags.design}, onsets {name}, seed {seed}: {judged['headline']} ({against})")
    print("\n".join(lines))
    for (name, verdict), sets in verdicts.items():
        print(f"{flags.design}, onsets {name}: {verdict} in {sets} of {flags.seeds}")


if __name__ == "__main__":
    main()
