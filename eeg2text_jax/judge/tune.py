"""Tuning of soft prompts as a page: restore, then step, log, look at dev, save until done."""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from jax.sharding import NamedSharding, PartitionSpec
from scipy import special

from eeg2text_jax.errors import UserError
from eeg2text_jax.judge.fields import JudgeSettings
from eeg2text_jax.judge.frozen import Frozen, initial_prompts, weights_shardings
from eeg2text_jax.judge.pair_batches import PairBatches, block, slices
from eeg2text_jax.judge.pairs import Pair, Parts
from eeg2text_jax.judge.program import TuneProgram, TuneState, keep_best, with_dropout
from eeg2text_jax.judge.thresholds import accuracy, auc
from eeg2text_jax.judge.wording import Encoder, Labels, Wording
from eeg2text_jax.parallel.distributed import to_host
from eeg2text_jax.parallel.mesh import make_mesh, mesh_shape
from eeg2text_jax.parallel.placement import REPLICATED, Placement, arm_sharding, arms_mapping, replicated
from eeg2text_jax.progress import ProgressLine
from eeg2text_jax.training.checkpoint import Checkpoints, Preemption
from eeg2text_jax.training.metrics_log import MetricsLog, write_lines
from eeg2text_jax.training.state import make_optimizer


class Task(NamedTuple):
    """What is tuned: a frozen model, what it is asked, and the pairs."""

    frozen: Frozen
    wording: Wording
    labels: Labels
    parts: Parts
    digest: str  # of the pairs


class Tuned(NamedTuple):
    """Prompts before and after, and how the best of each arm did on dev."""

    arms: list[tuple[int, float]]  # seed and learning rate
    first: np.ndarray  # float32 [A, P, D]
    prompts: np.ndarray  # float32 [A, P, D]
    best: np.ndarray  # accuracy and AUC on dev, [A, 2]
    steps: np.ndarray  # at which, [A]
    wordings: tuple[Wording, ...] = ()  # of each arm, where they differ

    def task(self, task: Task, arm: int) -> Task:
        """Return the task with the wording of an arm."""
        return task._replace(wording=self.wordings[arm]) if self.wordings else task

    @property
    def chosen(self) -> int:
        """The arm with the best accuracy, of equal ones the best AUC, then the earlier step, then the first arm."""
        return max(range(len(self.arms)), key=lambda a: (*self.best[a].tolist(), -int(self.steps[a]), -a))


def arms_of(config: JudgeSettings) -> list[tuple[int, float]]:
    """Seed and learning rate of every arm."""
    return [(int(seed), float(rate)) for rate in config.optim.lr for seed in config.seeds]


def make_program(config: JudgeSettings, model: Any, labels: Labels, mesh: Any = None) -> TuneProgram:
    """The compiled side of tuning as the configuration has it."""
    return TuneProgram(
        model=with_dropout(model, config.prompt.dropout),
        labels=labels.ids,
        rates=tuple(rate for _, rate in arms_of(config)),
        optimizer=lambda rate: make_optimizer(cast(Any, config.optim), config.train.steps, rate),
        mapping=arms_mapping(config.parallel),
        mesh=mesh,
        at_once=config.batch.at_once,
    )


def tune(config: JudgeSettings, task: Task, root: epath.Path) -> Tuned:
    """Tunes every arm, going on from the newest checkpoint in `root`.

    Raises:
      UserError: a pair is too long, a loss is not finite, or a checkpoint cannot be written or is of other pairs.
      Terminated: SIGTERM came, and the step that was under way is saved.
    """
    arms, steps = arms_of(config), config.train.steps
    placement = _place(config, len(arms))
    program = make_program(config, task.frozen.model, task.labels, placement.mesh)
    encode = task.frozen.encoder(
        task.wording, task.labels, config.prompt.length, config.truncate, max(config.batch.widths)
    )
    batches = _batches(config, task, encode)
    first = _first_prompts(config, task)
    frozen = jax.device_put(
        task.frozen.params, weights_shardings(task.frozen.params, placement.mesh, config.parallel.fsdp)
    )
    keys = jax.device_put(_keys(arms), replicated(placement.mesh))
    on_dev = DevScores(config, task, encode, program, placement)

    with Checkpoints(root) as checkpoints, Preemption() as preemption:
        state, lines, losses = _restore_or_begin(config, task, program, placement, checkpoints, first)
        formats = placement.shardings(state)
        step_arms = jax.jit(program.tune_step, donate_argnums=0, out_shardings=(formats, arm_sharding(placement.mesh)))
        keep = jax.jit(keep_best, donate_argnums=0, out_shardings=formats)
        done = int(state.step)
        if done:
            print(f"going on from the checkpoint of step {done}")
        with MetricsLog(root, done, lines) as log, ProgressLine("tune", steps, done) as progress:
            for step in range(done + 1, steps + 1):
                state, metrics = step_arms(state, placement.batch(batches(step - 1)), frozen, keys)
                losses.append(metrics["loss"])
                shown = ""
                last = step == steps or preemption.stop_after(step)
                if step % config.train.eval_every == 0 or step % config.train.save_every == 0 or step == steps:
                    shown = _log(log, step, losses, arms)
                    losses = []
                if step % config.train.eval_every == 0 or step == steps:
                    found = on_dev(state.prompt, frozen)
                    state = keep(state, jax.device_put(found, arm_sharding(placement.mesh)))
                    best = found[int(found[:, 0].argmax())]
                    shown = f"{shown}, dev accuracy {best[0]:.3f}, AUC {best[1]:.3f}"
                    log.add(step, _by_arm("dev_accuracy", found[:, 0], arms) | _by_arm("dev_auc", found[:, 1], arms))
                if step % config.train.save_every == 0 or last:
                    # Losses that are not logged yet, as after SIGTERM, go into the mean that the next start logs.
                    held = [to_host(loss).tolist() for loss in losses]
                    checkpoints.save(step, state, {"pairs": task.digest, "log": log.lines, "losses": held})
                progress.advance(1, shown)
                if last:
                    break
        checkpoints.wait()
    if not lines and done >= steps:
        write_lines(root, lines)
    found = to_host(state)
    return Tuned(arms, first, found.best_prompt, found.best, found.best_step)


def _place(config: JudgeSettings, arms: int) -> Placement:
    return Placement(make_mesh(*tune_mesh(config, len(jax.devices()), arms)), REPLICATED)


def tune_mesh(config: JudgeSettings, devices: int, arms: int) -> tuple[int, int]:
    """Return the devices along `arm` and `data`: arms first, or with `parallel.fsdp` as many along `data` as can be.

    Raises:
      UserError: `parallel.mesh` does not fit the devices, the arms or the batch.
    """
    wanted = config.parallel.mesh
    if arms_mapping(config.parallel) == "map":
        wanted = (1, wanted[1])
    elif config.parallel.fsdp and not any(wanted):
        wanted = (0, math.gcd(devices, config.batch.size))
    return mesh_shape(devices, arms, config.batch.size, wanted)


def _batches(config: JudgeSettings, task: Task, encode: Encoder) -> PairBatches:
    train = task.parts.train
    ids = encode([(pair.reference, pair.hypothesis) for pair in train], "train pair")
    yes = np.array([pair.preserved for pair in train])
    pad = task.frozen.model.pad_token
    return PairBatches(ids, yes, config.batch.widths, config.batch.size, pad, config.split.seed)


def _first_prompts(config: JudgeSettings, task: Task) -> np.ndarray:
    """Initial prompts `[A, P, D]`: those of a seed are the same for all learning rates."""
    texts = [text for pair in task.parts.train for text in (pair.reference, pair.hypothesis)]
    return initial_prompts(
        task.frozen,
        [seed for seed, _ in arms_of(config)],
        length=config.prompt.length,
        init=config.prompt.init,
        population=config.prompt.population,
        labels=task.labels,
        texts=texts,
    )


def _keys(arms: Sequence[tuple[int, float]]) -> jax.Array:
    return jax.vmap(jax.random.key)(jnp.asarray([seed for seed, _ in arms], jnp.uint32))


def _restore_or_begin(
    config: JudgeSettings,
    task: Task,
    program: TuneProgram,
    placement: Placement,
    checkpoints: Checkpoints,
    first: np.ndarray,
) -> tuple[TuneState, list[str], list[jax.Array]]:
    """The state of the newest checkpoint, the lines logged until then and the losses that are not in them; or the
    state before the first step."""
    shapes = program.state_shapes(config.prompt.length)
    restored = checkpoints.restore(placement.abstract(shapes))
    if restored is None:
        begin = jax.jit(program.initial_state, out_shardings=placement.shardings(shapes))
        return begin(jnp.asarray(first)), [], []
    _, state, info = restored
    if info.get("pairs") != task.digest:
        raise UserError(
            f"{checkpoints.directory}: the checkpoint was tuned on other pairs; take another --workdir or put the file "
            "of pairs back."
        )
    return state, info["log"], [jnp.asarray(loss, jnp.float32) for loss in info.get("losses", [])]


def _by_arm(name: str, values: np.ndarray, arms: Sequence[tuple[int, float]]) -> dict[str, float]:
    return {f"{name}/seed_{seed}_lr_{rate:g}": float(v) for (seed, rate), v in zip(arms, values, strict=True)}


def _log(log: MetricsLog, step: int, losses: Sequence[jax.Array], arms: Sequence[tuple[int, float]]) -> str:
    """Logs the mean losses since the last time, and refuses those that are not finite."""
    mean = np.mean([to_host(loss) for loss in losses], axis=0)
    if not np.isfinite(mean).all():
        seed, rate = arms[int(np.flatnonzero(~np.isfinite(mean))[0])]
        raise UserError(
            f"steps {step - len(losses) + 1} to {step}: the loss of seed {seed}, learning rate {rate:g} is not finite; "
            "lower optim.lr."
        )
    log.add(step, _by_arm("loss", mean, arms))
    return f"loss {mean.mean():.3f}"


def dev_rows(config: JudgeSettings, program: TuneProgram, width: int) -> int:
    """Pairs of `width` tokens that are scored at once: of four batches, as nothing is kept for a backward pass."""
    rows = 4 * config.batch.size
    return rows // program.pieces(rows, width // 4)


class DevScores:
    """Accuracy and AUC of every arm's prompt on the dev part, float32 `[A, 2]`; calls must be of equal shapes."""

    def __init__(self, config: JudgeSettings, task: Task, encode: Encoder, program: TuneProgram, placement: Placement):
        pairs: Sequence[Pair] = task.parts.dev
        self.yes = np.array([pair.preserved for pair in pairs])
        ids = encode([(pair.reference, pair.hypothesis) for pair in pairs], "dev pair")
        pad = task.frozen.model.pad_token
        size = functools.partial(dev_rows, config, program)
        self._batches = [
            (rows, placement.batch(block(ids, self.yes, rows, width, size(width), pad)))
            for rows, width in slices(list(map(len, ids)), config.batch.widths, size)
        ]
        where = NamedSharding(placement.mesh, PartitionSpec())
        self._step = jax.jit(program.score_step, out_shardings=where)

    def __call__(self, prompt: jax.Array, frozen: Any) -> np.ndarray:
        scores = self.scores(prompt, frozen)
        return np.array([(accuracy(row, self.yes), auc(row, self.yes)) for row in scores], np.float32)

    def scores(self, prompt: jax.Array, frozen: Any) -> np.ndarray:
        """s of every pair under every prompt `[A, P, D]`: float64 `[A, N]`."""
        found = np.zeros((len(prompt), len(self.yes)))
        pending = [(rows, self._step(prompt, batch, frozen)) for rows, batch in self._batches]
        for rows, answers in pending:
            answers = to_host(answers)[:, : len(rows)].astype(float)
            found[:, rows] = special.expit(answers[..., 0] - answers[..., 1])
        return found
