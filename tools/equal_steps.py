"""Trains small systems of every kind 20 steps on every mesh of eight CPU devices, held against the plainest path.

python tools/equal_steps.py [--systems=bart,t5,unicorn] [--cases=mesh,divided]

A system is a backbone (`bart`, `pegasus`, `t5`, `bert2bert`) behind the transformer of words; BART behind UniCoRN's
encoder of volumes (`unicorn`); a stage that reconstructs volumes (`snapshot`, `series`); or the contrastive model
(`contrastive`). The plainest path is one device, no layer computed again, gradients by autodiff alone, logits of all
positions, whole batches. Held against it are losses, the gradient of the last step and where 20 steps led: layers
computed again, both ways; arms one after the other; microbatches; meshes of arms and data; divided parameters.
`--cases` takes those whose names have one of these parts.
"""

import argparse
import dataclasses
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tiny_grid

from eeg2text_jax.base.devices import mesh as meshes
from eeg2text_jax.base.devices.mesh import make_mesh
from eeg2text_jax.models import _heads as heads
from eeg2text_jax.models import brain, layers
from eeg2text_jax.models.backbones.build import random_spec
from eeg2text_jax.models.brain import ReconstructionModel
from eeg2text_jax.models.functional import ContrastiveModel, Seq2SeqModel
from eeg2text_jax.models.layers import dropout
from eeg2text_jax.models.spec import EEGSpec, Seq2SeqSpec
from eeg2text_jax.training.grid_program import ContrastiveProgram, ReconstructionProgram
from eeg2text_jax.training.step import GridProgram

LOSS, GRADIENT, PARAMETER = 1e-5, 1e-3, 1e-4  # relative, as in tests/parity; of an array, by norms
# In 20 steps at 0.005, rounding grows to 1e-3 of the loss of a T5, whose random weights do not scale its scores, and to
# 3e-5 of that of one arm of UniCoRN, where a value passes 0 before a ReLU; on one device beside the plainest path, too.
LR = {"t5": 0.00005, "unicorn": 0.0005}
OTHER_LR = 0.005
SHAPES = {
    "bart": {"d_model": 16, "max_position_embeddings": 64, "encoder_layers": 2, "decoder_layers": 2}
    | {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32},
    "t5": {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2},
    "bert2bert": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    | {"max_position_embeddings": 64},
}
SHAPES["pegasus"] = SHAPES["bart"]
SYSTEMS = ("bart", "pegasus", "t5", "bert2bert", "unicorn", "snapshot", "series", "contrastive")
VOLUME = (5, 2, 1)  # the features of a word as a volume
CASES: dict[str, dict[str, Any]] = {  # mesh, options of the model, options of the program
    "one device": {},
    "layers computed again": {"model": {"remat": True}},
    "... and nothing kept": {"model": {"remat": True, "keep": "nothing"}},
    "arms one after the other": {"model": {"remat": True}, "program": {"mapping": "map"}},
    **{f"mesh {a}x{d}": {"mesh": (a, d), "model": {"remat": True}} for a, d in ((2, 4), (4, 2), (8, 1), (1, 8))},
    "parameters divided, 2x4": {"mesh": (2, 4), "rules": meshes.FULLY_SHARDED},
    "four microbatches": {"model": {"remat": True}, "program": {"accumulate": 4}},
    "four microbatches, mesh 2x4": {"mesh": (2, 4), "model": {"remat": True}, "program": {"accumulate": 4}},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--cases", default="", help="parts of the names of the cases, with commas")
    args = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", 8)
    held = wrong = 0
    start = time.monotonic()
    for system in args.systems.split(","):
        for name, off in compare(system, args.cases):
            held, wrong = held + 1, wrong + (not equal(off))
            said = "losses {:.1e}, gradient {:.1e}, parameters {:.1e}".format(*off)
            print(f"{'equal' if equal(off) else 'DIFFERS'}: {system}, {name}: {said}", flush=True)
    print(f"{held} cases, {wrong} different; {time.monotonic() - start:.0f} s")
    return 1 if wrong or not held else 0


def compare(system: str, words: str = "") -> Iterator[tuple[str, tuple[float, float, float]]]:
    """The cases of a system that `--cases` takes; how far off losses, gradient and parameters are."""
    meshes.FSDP_MIN_SIZE = 1
    references: dict[bool, Any] = {}
    for name, case in CASES.items():
        if not any(part in name for part in words.split(",")):
            continue
        still = "accumulate" in case.get("program", {})  # microbatches draw dropout of their own
        if still and system == "contrastive":  # its candidates are those of the batch, which the settings never divide
            continue
        if still not in references:
            references[still] = plain(system, still)
        yield name, distances(references[still], train(system, still, **case))


def equal(off: tuple[float, float, float]) -> bool:
    return off[0] < LOSS and off[1] < GRADIENT and off[2] < PARAMETER


def train(system: str, still: bool, mesh=(1, 1), rules=meshes.REPLICATED, model=None, program=None) -> tuple:
    """Losses `[steps, A]`, the last step's gradient and the parameters after it, `[A, ...]` each."""
    made = make_program(system, still, model or {}, program or {})
    # What a gradient is, the state tells: a trace without decay remembers the last one.
    sgd = optax.chain(optax.trace(0.0), optax.sgd(LR.get(system, OTHER_LR)))
    devices = make_mesh(*mesh, jax.devices()[: mesh[0] * mesh[1]])
    state, losses, _ = tiny_grid.train(dataclasses.replace(made, optimizer=sgd), devices, rules)
    return losses, *jax.tree.map(np.asarray, (state.opt_state[0].trace, state.params))


def make_program(system: str, still: bool, model: dict[str, Any], options: dict[str, Any]) -> GridProgram:
    """The program of a system with options of the model and of the program; `still`: without dropout."""
    rate = 0.0 if still else 0.1
    eeg = EEGSpec(features=tiny_grid.F, layers=1, heads=2, ffn=16, dropout=rate)
    volumes = dataclasses.replace(eeg, kind="unicorn", width=8, volume=VOLUME, channels=(4,), positions="sinusoidal")
    if system in ("snapshot", "series"):  # the absolute error has a gradient that jumps, so the squared one
        hidden = 0.3 if system == "series" and not still else 0.0  # microbatches hide snapshots of their own
        network = ReconstructionModel(volumes, system, tiny_grid.Tokens.pad_token_id, hidden, **model)
        return tiny_grid.make_program(tiny_grid.ARMS, network, kind=ReconstructionProgram, error="mse", **options)
    backbone = system if system in SHAPES else "bart"
    spec = random_spec(backbone, {**SHAPES[backbone], "vocab_size": tiny_grid.VOCABULARY}, tiny_grid.Tokens())
    network = Seq2SeqModel(without_dropout(spec) if still else spec, volumes if system == "unicorn" else eeg, **model)
    if system != "contrastive":
        return tiny_grid.make_program(tiny_grid.ARMS, network, **options)
    towers = ContrastiveModel(network, 8, tiny_grid.TEXT_WIDTH, 0.1, learn_temperature=True)
    return tiny_grid.make_program(tiny_grid.ARMS, towers, kind=ContrastiveProgram, label_smoothing=0.0, **options)


def plain(system: str, still: bool) -> tuple:
    with (
        mock.patch.object(heads, "attend", plain_attend),
        mock.patch.object(layers, "affine", plain_affine),
        mock.patch.object(brain, "convolve", brain._convolve),
        mock.patch.object(brain, "convolve_back", brain._convolve_back),
        mock.patch.object(GridProgram, "_on_a_cpu", new=False),
    ):
        return train(system, still)


def plain_affine(x, scale, shift, dtype) -> jax.Array:
    rows = [None if row is None else row.reshape(*(1,) * (x.ndim - 1), -1) for row in (scale, shift)]
    return ((x if scale is None else x * rows[0]) + (0.0 if shift is None else rows[1])).astype(dtype)


def plain_attend(queries, keys, values, biases, rate=0.0, dropout_key=None, cap=0.0) -> jax.Array:
    scores = jnp.einsum("xyqd,xykd->xyqk", queries, keys)
    scores = cap * jnp.tanh(scores / cap) if cap else scores
    for bias in biases:
        scores = scores + bias
    return jnp.einsum("xyqk,xykd->xyqd", dropout(jax.nn.softmax(scores, axis=-1), rate, dropout_key), values)


def without_dropout(spec: Seq2SeqSpec) -> Seq2SeqSpec:
    def still(stack):
        names = [f.name for f in dataclasses.fields(stack) if "dropout" in f.name]
        return dataclasses.replace(stack, **dict.fromkeys(names, 0.0))

    return dataclasses.replace(spec, encoder=still(spec.encoder), decoder=still(spec.decoder))


def distances(expected: tuple, found: tuple) -> tuple[float, float, float]:
    loss = float(np.max(np.abs(found[0] - expected[0]) / np.abs(expected[0])))
    return loss, *(distance(found[i], expected[i]) for i in (1, 2))


def distance(found: Any, expected: Any) -> float:
    """The largest difference of an array, by its norm; what is nothing but rounding is held against all of it."""
    ours, theirs = jax.tree.leaves(found), jax.tree.leaves(expected)
    whole = np.sqrt(sum(np.sum(np.square(leaf)) for leaf in theirs))
    pairs, norm = zip(ours, theirs, strict=True), np.linalg.norm
    return max(float(norm(a - b) / max(norm(b), 1e-3 * whole)) for a, b in pairs)


if __name__ == "__main__":
    sys.exit(main())
