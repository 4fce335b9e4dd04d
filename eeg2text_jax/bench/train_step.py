"""Our side of the benchmark of training: the program that `eeg2text train` runs, compiled ahead of the timing."""

import time
from typing import Any, NamedTuple

import jax

from eeg2text_jax.bench.train_work import study_arrays
from eeg2text_jax.data.batches import Batch, stack_seeds
from eeg2text_jax.grid import init_keys
from eeg2text_jax.parallel.arms import compile_step
from eeg2text_jax.parallel.mesh import make_mesh
from eeg2text_jax.parallel.partition import REPLICATED, put_batch, put_training_batch, state_shardings
from eeg2text_jax.training.step import GridProgram


class Compilation(NamedTuple):
    """One program for one bucket."""

    seconds: float  # of tracing and compiling
    memory: int  # bytes of arguments, temporaries and what is returned anew


class OurTraining:
    """All arms of a program in training on one device."""

    def __init__(self, program: GridProgram):
        self._program, self._mesh = program, make_mesh(1, 1, jax.devices()[:1])
        self._arrays, self._compiled = study_arrays(program), {}
        self._shardings = state_shardings(program.state_shapes(), self._mesh, REPLICATED)
        start = jax.jit(program.initial_state, out_shardings=self._shardings)
        self._state = start(init_keys(program.arms, 0))

    def compile(self, batch: Batch) -> Compilation:
        """Compiles the step for batches of this shape."""
        begun = time.perf_counter()
        step = compile_step(self._program.train_step, self._mesh, self._shardings)
        compiled = step.lower(self._state, self._put(batch), self._arrays).compile()
        self._compiled[batch["labels"].shape] = compiled
        memory = compiled.memory_analysis()
        taken = memory.argument_size_in_bytes + memory.temp_size_in_bytes + memory.output_size_in_bytes
        return Compilation(time.perf_counter() - begun, taken - memory.alias_size_in_bytes)

    def text(self, batch: Batch) -> str:
        """The optimized HLO of the step for batches of this shape."""
        return self._compiled[batch["labels"].shape].as_text()

    def step(self, batch: Batch) -> float:
        """One update of all arms; returns the first arm's loss once the update is done."""
        compiled = self._compiled[batch["labels"].shape]
        self._state, metrics = compiled(self._state, self._put(batch), self._arrays)
        jax.block_until_ready(self._state)
        return float(metrics["loss"][0])

    def _put(self, batch: Batch) -> dict[str, jax.Array]:
        """A batch `[B, ...]` as the one of the only seed."""
        return put_training_batch(stack_seeds([batch]), self._mesh)

    def first_loss(self, batch: Batch) -> float:
        """Loss of the first arm in nats per token without dropout."""
        summed, count = jax.jit(self._program.eval_step)(self._state.params, put_batch(batch, self._mesh), self._arrays)
        return float(summed[0] / count[0])

    def host_params(self) -> Any:
        """The first arm's parameters as NumPy arrays."""
        return jax.tree.map(lambda leaf: jax.device_get(leaf[0]), self._state.params)
