"""The fair benchmark's UniCoRN on made-up ZuCo recordings, whole and killed once in each stage: equal results.

python tools/kill_in_stages.py DIR [--config.FIELD=VALUE ...]

Writes MAT files of 12 subjects into DIR/zuco, runs configs/fair.py:model=unicorn,data=zuco on them at a reduced size,
without a break into DIR/whole, and into DIR/killed with SIGKILL behind a checkpoint of each of the three stages. Then
compares predictions, scores, the audit, and the losses and the last checkpoint of every stage.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

from eeg2text_jax.errors import UserError
from eeg2text_testing.forked_runs import final_checkpoint, logged_metrics
from eeg2text_testing.zuco_files import Irregularities, Simulator, write_v5

SUBJECTS = ("ZAB", "ZDM", "ZDN", "ZGW", "ZJM", "ZJN", "ZJS", "ZKB", "ZKH", "ZKW", "ZMG", "ZPH")
TEXT = "the film is a slow and witty story of men who drove their old cars home for no good reason at all"
STAGES = ("snapshot", "series", "")
KILL = """
import os, signal, sys
from eeg2text_jax import cli
from eeg2text_jax.training.checkpoint import Checkpoints
save, folder = Checkpoints.save, sys.argv.pop(1)
def save_and_die(self, step, *rest):
    save(self, step, *rest)
    if self.directory.parent.name == folder and step == 4:
        os.kill(os.getpid(), signal.SIGKILL)
Checkpoints.save = save_and_die
sys.exit(cli.main(sys.argv[1:]))
"""
REDUCED = {
    "split.ratio": (0.5, 0.25, 0.25),
    "text.vocab_size": 300,
    "model.dtype": "float32",
    "model.remat": False,
    "model.encoder_layers": 1,
    "model.encoder_heads": 2,
    "model.encoder_ffn": 32,
    "model.unicorn.hidden": 32,
    "batch.size": 16,
    "batch.buckets": ((24, 56),),
    **{f"model.shape.{side}_layers": 1 for side in ("encoder", "decoder")},
    **{f"model.shape.{side}_attention_heads": 2 for side in ("encoder", "decoder")},
    **{f"model.shape.{side}_ffn_dim": 32 for side in ("encoder", "decoder")},
    "model.shape.d_model": 32,
    "model.shape.max_position_embeddings": 64,
    **{f"pretrain.{stage}.{name}": value for stage in ("snapshot", "series")
       for name, value in {"epochs": 0, "steps": 8, "eval_epochs": 0, "eval_every": 4}.items()},
    **{f"train.{name}": 0 for name in ("epochs", "eval_epochs", "save_epochs")},
    "train.steps": 8,
    "train.eval_every": 4,
    "train.save_every": 2,
    "train.log_every": 1,
    "train.rng": "threefry",
    "decode.num_beams": 2,
    "decode.max_length": 16,
    "audit.resamples": 200,
    "parallel.mesh": (1, 1),
}  # fmt: skip


def main(root: Path, overrides: list[str]) -> None:
    source = root / "zuco"
    if not source.exists():
        write(source)
    config = Path(__file__).parents[1] / "configs/fair.py"
    flags = [f"--config={config}:model=unicorn,data=zuco,checkpoint=random", f"--config.data.source={source}"]
    flags += [f"--config.{name}={value}" for name, value in shape_first(REDUCED).items()] + overrides
    whole, killed = root / "whole", root / "killed"
    run(["-m", "eeg2text_jax", "run", *flags, f"--workdir={whole}"], 0)
    for stage in STAGES:
        run(["-c", KILL, stage or killed.name, "run", *flags, f"--workdir={killed}"], -signal.SIGKILL)
    run(["-m", "eeg2text_jax", "run", *flags, f"--workdir={killed}"], 0)
    compare(whole, killed)
    print("killed in snapshot, series and text: predictions, scores, audit, losses and checkpoints are equal.")


def shape_first(fields: dict[str, object]) -> dict[str, object]:
    """Single fields of `model.shape` become the whole of it, as the full-size configuration has none."""
    shape = {name.removeprefix("model.shape."): value for name, value in fields.items() if "model.shape." in name}
    return {name: value for name, value in fields.items() if "model.shape." not in name} | {"model.shape": shape}


def write(folder: Path) -> None:
    """Twelve readers of 24 sentences, simulated EEG."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(TEXT.split(), rng.integers(4, 12))) + f" {number}" for number in range(24)]
    for number, subject in enumerate(SUBJECTS):
        content = Simulator(number, np.float32, raw_samples=(3, 2)).subject(texts, Irregularities())
        write_v5(folder / f"results{subject}_SR.mat", content)


def run(arguments: list[str], expected: int) -> None:
    found = subprocess.run([sys.executable, *arguments], check=False)
    if found.returncode != expected:
        raise SystemExit(f"exit status {found.returncode}, expected {expected}: {' '.join(arguments[:4])} ...")


def compare(whole: Path, killed: Path) -> None:
    """
    Raises:
      UserError: something differs.
    """
    for name in ("predictions.jsonl", "results.json", "audit.json"):
        if (whole / name).read_bytes() != (killed / name).read_bytes():
            raise UserError(f"{killed / name}: differs from {whole / name}.")
    for stage in STAGES:
        if logged_metrics(whole / stage) != logged_metrics(killed / stage):
            raise UserError(f"{killed / stage}: other losses than {whole / stage}.")
        (_, one, _), (_, two, _) = final_checkpoint(whole / stage), final_checkpoint(killed / stage)
        different = [name for name in one if not np.array_equal(one[name], two.get(name))]
        if one.keys() != two.keys() or different:
            raise UserError(f"{killed / stage}: another last checkpoint ({', '.join(different[:3])}).")
    rows = [json.loads(line) for line in (whole / "predictions.jsonl").read_text().splitlines()[1:]]
    print(f"{len(rows)} predictions compared")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:])
