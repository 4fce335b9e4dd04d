"""Preflight of a judge: compile the tuning of its soft prompts for a TPU that is not present, and report memory.

The frozen model's shape comes from a checkpoint's config.json; its weights need not exist.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from eeg2text_jax.base.devices import mesh as meshes
from eeg2text_jax.base.devices.mesh import ARM, DATA, GIB, Placement, arm_sharding, with_sharding
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.packages import compiler_versions, in_words
from eeg2text_jax.base.stores.buckets import at_hand
from eeg2text_jax.commands.preflight import compiling
from eeg2text_jax.commands.preflight.compiling import SLICES, Compiled, Topology, compile_program, tpu_devices
from eeg2text_jax.commands.preflight.estimate import usable
from eeg2text_jax.commands.preflight.programs import Program
from eeg2text_jax.judge.fields import JudgeSettings
from eeg2text_jax.judge.frozen import stored_as, weights_shardings
from eeg2text_jax.judge.tune import arms_of, dev_rows, make_program, tune_mesh
from eeg2text_jax.judge.wording import Labels
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.models.pretrained.load import read_config, spec_of

LABELS = Labels(("yes", "no"), ((7,), (9,)))  # one token each, as in T5 and PEGASUS; memory does not depend on the ids


@dataclasses.dataclass(frozen=True)
class JudgeFit:
    """Memory of a judge's programs on one device, for the bucket of the most tokens."""

    topology: str
    arms: int  # soft prompts that are tuned at the same time
    pairs: int  # batch size of a tuning step
    pieces: int  # micro-batches of a tuning step
    tokens: int  # of a pair, with padding
    scored: int  # pairs per scoring step
    frozen: int  # bytes of the frozen weights
    chips: int  # over which the frozen weights are sharded
    tuning: Compiled
    scoring: Compiled
    limit: int  # bytes of device memory available to a program

    @property
    def good(self) -> bool:
        """Whether both programs fit, and no collective crosses the mesh axis of the soft prompts."""
        crossing = [c for one in (self.tuning, self.scoring) for c in one.collectives or () if ARM in c.axes]
        return max(self.tuning.total, self.scoring.total) <= self.limit and not crossing

    def __str__(self) -> str:
        pieces = f" in {self.pieces} pieces" if self.pieces > 1 else ""
        tuning = f"tuning step of {self.arms} prompts, batch {self.pairs}{pieces}, {self.tokens} tokens"
        scoring = f"scoring {self.scored} pairs under {self.arms} prompts, {self.tokens} tokens"
        shared = f", divided over {self.chips} chips" if self.chips > 1 else ""
        lines = [
            self._line(tuning, self.tuning),
            self._line(scoring, self.scoring),
            f"frozen weights, one copy for all prompts: {self.frozen / GIB:.2f} GiB{shared}",
            f"figures are of {in_words(compiler_versions('tpu'))}",
        ]
        if self.tuning.total > self.limit:
            divided = "" if self.chips > 1 else "parallel.fsdp=True on several chips, "
            lines.append(
                f"remedies: {divided}model.remat=True with model.keep=nothing, a lower batch.at_once, narrower "
                "batch.widths"
            )
        return "\n".join(lines)

    def _line(self, what: str, one: Compiled) -> str:
        verdict = "fits" if one.total <= self.limit else "DOES NOT FIT"
        temporaries = "" if one.temporaries is None else f", temporaries {one.temporaries / GIB:.2f} GiB"
        return (
            f"{what}: {one.total / GIB:.2f} of {self.limit / GIB:.2f} GiB a chip, {verdict}{temporaries} (compiled in "
            f"{one.seconds:.0f} s)"
        )

    def to_json(self) -> dict[str, Any]:
        numbers = {name: getattr(self, name) for name in ("arms", "pairs", "pieces", "tokens", "scored", "chips")}
        sizes = {"frozen_bytes": self.frozen, "usable_bytes": self.limit, "good": self.good}
        programs = {
            name: {"total_bytes": one.total, "argument_bytes": one.arguments, "temporary_bytes": one.temporaries}
            for name, one in {"tuning": self.tuning, "scoring": self.scoring}.items()
        }
        return numbers | sizes | {"programs": programs, "versions": compiler_versions("tpu")}


def judge_fit(config: JudgeSettings, topology: Topology, effort: str) -> JudgeFit:
    """Compile a judge's tuning and scoring steps for a TPU slice; `effort` is a key of `compiling.EFFORTS`.

    Raises UserError without a config.json of the checkpoint, or if the topology is not usable.
    """
    if topology.chip.platform != "tpu":
        raise UserError(f"--topology={topology.name}: a judge is compiled for TPUs only; take v5e:1x1, say.")
    model = _model(config)
    arms, devices = len(arms_of(config)), tpu_devices(topology)
    if config.parallel.arms == "auto":  # "auto" would depend on this machine's devices
        config = dataclasses.replace(config, parallel=dataclasses.replace(config.parallel, arms="vmap"))
    mesh = meshes.make_mesh(*tune_mesh(config, len(devices), arms), devices)
    placement = Placement(mesh, meshes.REPLICATED)
    program = make_program(config, model, LABELS, mesh)
    state = placement.abstract(program.state_shapes(config.prompt.length))
    weights = _weights(config, model)
    frozen = with_sharding(weights, weights_shardings(weights, mesh, config.parallel.fsdp))
    size, width = config.batch.size, max(config.batch.widths)
    keys = jax.eval_shape(lambda: jax.vmap(jax.random.key)(jnp.arange(arms, dtype=jnp.uint32)))
    keys = with_sharding(keys, arm_sharding(mesh))
    step = jax.jit(program.tune_step, donate_argnums=0, out_shardings=(placement.shardings(state), arm_sharding(mesh)))
    tuning = compile_program(Program(step, (state, _batch(size, width, mesh), frozen, keys)), mesh, effort)
    scored = dev_rows(config, program, width)
    score = jax.jit(program.score_step, out_shardings=meshes.replicated(mesh))
    scoring = compile_program(Program(score, (state.prompt, _batch(scored, width, mesh), frozen)), mesh, effort)
    held, chips = _bytes(weights), mesh.shape[DATA] if config.parallel.fsdp else 1
    numbers = arms, size, program.pieces(size, width), width, scored, held, chips
    return JudgeFit(topology.name, *numbers, tuning, scoring, usable(topology.chip))


def smallest_slice(config: JudgeSettings, chip: str, effort: str, say: Callable[[str], None]) -> JudgeFit:
    """Return the fit on the smallest slice that has room; `say` prints why smaller ones have none.

    Raises UserError if the chip is no TPU, or no slice fits.
    """
    if chip not in SLICES:
        raise UserError(f"--topology={chip}: expected a TPU ({', '.join(SLICES)}), perhaps with a shape, as v5e:2x4.")
    weights = _bytes(_weights(config, _model(config)))
    for shape in SLICES[chip]:
        topology = compiling.parse_topology(f"{chip}:{shape}")
        most = math.gcd(math.prod(topology.shape), config.batch.size) if config.parallel.fsdp else 1
        if weights / most > usable(topology.chip):
            say(f"{topology.name}: too small, frozen weights alone take {weights / most / GIB:.2f} GiB a chip")
            continue
        fit = judge_fit(config, topology, effort)
        if fit.good:
            return fit
        say(f"{topology.name}: too small\n{fit}")
    advice = "take another chip" if config.parallel.fsdp else "set parallel.fsdp=True, which divides the frozen weights"
    raise UserError(f"--topology={chip}: this judge fits no slice; {advice}.")


def _model(config: JudgeSettings) -> Seq2SeqModel:
    folder = Path(at_hand(config.checkpoint)).expanduser()
    if not (folder / "config.json").is_file():
        raise UserError(f"{config.checkpoint}: expected a folder with config.json; weights need not be in it.")
    spec = spec_of(read_config(folder), folder)
    return Seq2SeqModel(spec, None, config.dtype, remat=config.model.remat, keep=config.model.keep)


def _weights(config: JudgeSettings, model: Seq2SeqModel) -> dict:
    return jax.eval_shape(functools.partial(stored_as, dtype=config.param_dtype), model.shapes)


def _batch(size: int, width: int, mesh: jax.sharding.Mesh) -> dict[str, jax.ShapeDtypeStruct]:
    kinds = {"ids": ((size, width), "int32"), "length": ((size,), "int32"), "yes": ((size,), "bool")}
    kinds["weight"] = ((size,), "float32")
    rows = meshes.batch_sharding(mesh)
    return {name: jax.ShapeDtypeStruct(shape, jnp.dtype(kind), sharding=rows) for name, (shape, kind) in kinds.items()}


def _bytes(weights: dict) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(weights))
