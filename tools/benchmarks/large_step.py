"""Takes training steps of one arm at LARGE size on whatever is there, and says what they cost.

python tools/benchmarks/large_step.py [--backbone bart] [--batch 2] [--steps 2] [--remat]

Random weights of the checkpoint's shape, synthetic recordings as wide as ZuCo's, everything padded to 56.
"""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

from eeg2text_jax.base.devices.arms import compile_step
from eeg2text_jax.base.devices.mesh import put_training_batch
from eeg2text_jax.commands.preflight.programs import VOCABULARY
from eeg2text_jax.data.batches import make_batch, stack_seeds
from eeg2text_jax.training.configuration import load_config, open_workdir
from eeg2text_jax.training.grid_program import make_initial_state, make_program
from eeg2text_jax.training.sections import Settings, checked_settings
from eeg2text_jax.training.study import Study, open_study

PAPER = Path(__file__).parents[2] / "configs/paper.py"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", choices=("bart", "t5", "pegasus"), default="bart")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--remat", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = large_config(options)
        losses = take_steps(open_study(config, open_workdir(f"{folder}/run", config)), options.steps)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB")
    return 0 if np.isfinite(losses).all() else 1


def large_config(options: argparse.Namespace) -> Settings:
    """The paper's recipe for one arm, on synthetic recordings."""
    config = load_config(f"{PAPER}:backbone={options.backbone},checkpoint=random")
    with config.unlocked():
        config.model.shape.vocab_size = VOCABULARY[options.backbone]
    config.model.remat = options.remat
    config.data.source = "synthetic"
    config.data.synthetic.sentences, config.data.synthetic.features = 40, 840
    config.split.method = "unique_text"
    config.grid.train_conditions = config.grid.eval_conditions = ("eeg",)
    config.batch.buckets, config.batch.size = ((56, 56),), options.batch
    return checked_settings(config)


def take_steps(study: Study, steps: int) -> list[float]:
    """Prints time and loss of each step; returns the losses."""
    placement, program = study.placement, make_program(study.config, study.model, study.arms)
    state = make_initial_state(study, program, placement)
    print(f"{sum(leaf.size for leaf in jax.tree.leaves(state.params)) / 1e6:.0f} M parameters on {placement}")
    rows = study.split.parts["train"][: study.config.batch.size]
    batch = make_batch(study.samples, rows, (56, 56), study.config.batch.size)
    batch = put_training_batch(stack_seeds([batch]), placement.mesh)
    arrays = placement.constants(study.arrays)
    begun = time.perf_counter()
    step = compile_step(program.train_step, placement.mesh, placement.shardings(state))
    compiled = step.lower(state, batch, arrays).compile()
    print(f"compiled in {time.perf_counter() - begun:.1f} s")
    losses = []
    for number in range(1, steps + 1):
        begun = time.perf_counter()
        state, metrics = compiled(state, batch, arrays)
        losses.append(float(metrics["loss"][0]))
        print(f"step {number}: loss {losses[-1]:.4f}, {time.perf_counter() - begun:.1f} s", flush=True)
    return losses


if __name__ == "__main__":
    sys.exit(main())
