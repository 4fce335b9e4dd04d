"""The preflight of a judge: does tuning all of its prompts at once fit a TPU that is not there?

The frozen model is that of a checkpoint's config.json; its weights are not read and need not be there.
"""

import dataclasses
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from eeg2text_jax.errors import UserError
from eeg2text_jax.judge.program import stored_as
from eeg2text_jax.judge.tune import arms_of, make_program
from eeg2text_jax.judge.wording import Labels
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.parallel.mesh import ARM, make_mesh, mesh_shape
from eeg2text_jax.parallel.placement import REPLICATED, Placement, arm_sharding, batch_sharding, replicated
from eeg2text_jax.preflight.compiling import Compiled, Topology, compile_program, tpu_devices
from eeg2text_jax.preflight.estimate import usable
from eeg2text_jax.preflight.programs import Program
from eeg2text_jax.pretrained.load import read_config, spec_of
from eeg2text_jax.stores.copying import at_hand

GIB = 2**30
LABELS = Labels(("yes", "no"), ((7,), (9,)))  # of one piece each, as in T5 and PEGASUS; which ones costs nothing


@dataclasses.dataclass(frozen=True)
class JudgeFit:
    """The tuning step on one device, in bytes."""

    arms: int
    pairs: int
    tokens: int
    frozen: int
    compiled: Compiled
    limit: int

    @property
    def good(self) -> bool:
        """Whether it fits and prompts do not wait for each other."""
        crossing = [one for one in self.compiled.collectives or () if ARM in one.axes]
        return self.compiled.total <= self.limit and not crossing

    def __str__(self) -> str:
        parts = (self.compiled.total, self.limit, self.frozen, self.compiled.temporaries or 0)
        total, limit, frozen, temporaries = (f"{size / GIB:.2f} GiB" for size in parts)
        verdict = "fits" if self.compiled.total <= self.limit else "DOES NOT FIT"
        return (
            f"tuning step of {self.arms} prompts, batch {self.pairs}, {self.tokens} tokens: {total} of {limit} a chip, "
            f"{verdict} (compiled in {self.compiled.seconds:.0f} s)\n  frozen weights, there once: {frozen}; "
            f"temporaries {temporaries}"
        )


def judge_fit(config: ConfigDict, topology: Topology, effort: str) -> JudgeFit:
    """Compiles the tuning step on the widest bucket for a slice.

    Raises:
      UserError: the checkpoint's folder has no config.json, or the topology is not usable.
    """
    if topology.chip.platform != "tpu":
        raise UserError(f"--topology={topology.name}: a judge is compiled for TPUs only; take v5e:1x1, say.")
    folder = Path(at_hand(config.checkpoint)).expanduser()
    if not (folder / "config.json").is_file():
        raise UserError(f"{config.checkpoint}: expected a folder with config.json; weights need not be in it.")
    spec = spec_of(read_config(folder), folder)
    model = Seq2SeqModel(spec, None, config.dtype, remat=config.model.remat, keep=config.model.keep)
    arms, devices = len(arms_of(config)), tpu_devices(topology)
    if config.parallel.arms == "auto":  # which is about the machine that this is run on
        config = config.copy_and_resolve_references()
        config.parallel.arms = "vmap"
    wanted = tuple(int(n) for n in config.parallel.mesh)
    mesh = make_mesh(*mesh_shape(len(devices), arms, config.batch.size, wanted), devices)
    placement = Placement(mesh, REPLICATED)
    program = make_program(config, model, LABELS, mesh)
    state = placement.abstract(program.state_shapes(config.prompt.length))
    frozen = _placed(jax.eval_shape(functools.partial(stored_as, dtype=config.param_dtype), model.shapes), mesh)
    size, width = int(config.batch.size), int(max(config.batch.widths))
    kinds = {"ids": ((size, width), "int32"), "length": ((size,), "int32"), "yes": ((size,), "bool")}
    kinds["weight"] = ((size,), "float32")
    rows = batch_sharding(mesh)
    batch = {name: jax.ShapeDtypeStruct(shape, jnp.dtype(kind), sharding=rows) for name, (shape, kind) in kinds.items()}
    keys = jax.eval_shape(lambda: jax.vmap(jax.random.key)(jnp.arange(arms, dtype=jnp.uint32)))
    keys = jax.ShapeDtypeStruct(keys.shape, keys.dtype, sharding=arm_sharding(mesh))
    step = jax.jit(program.tune_step, donate_argnums=0, out_shardings=(placement.shardings(state), arm_sharding(mesh)))
    compiled = compile_program(Program(step, (state, batch, frozen, keys)), mesh, effort)
    weights = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(frozen))
    return JudgeFit(arms, size, width, weights, compiled, usable(topology.chip))


def _placed(shapes: dict, mesh: jax.sharding.Mesh) -> dict:
    where = replicated(mesh)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), shapes)
