"""The tuning loop of soft prompts: restore, then step, log, evaluate on dev and save until done; few-shot prompts."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from scipy import special

from eeg2text_jax.base.devices.hosts import to_host
from eeg2text_jax.base.devices.mesh import (
    REPLICATED,
    Placement,
    arm_sharding,
    arms_mapping,
    make_mesh,
    mesh_shape,
    put_batch,
    replicated,
)
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.progress import ProgressLine
from eeg2text_jax.judge.baselines import accuracy, auc
from eeg2text_jax.judge.fields import JudgeSettings
from eeg2text_jax.judge.frozen import (
    Asker,
    Frozen,
    TuneProgram,
    TuneState,
    initial_prompts,
    keep_best,
    weights_shardings,
    with_dropout,
)
from eeg2text_jax.judge.pairs import Pair, PairBatches, Parts, block, preserved_of, slices
from eeg2text_jax.judge.wording import Encoder, Labels, Wording
from eeg2text_jax.training.checkpoint import Checkpoints, Preemption
from eeg2text_jax.training.metrics_log import MetricsLog
from eeg2text_jax.training.step import make_optimizer


class Task(NamedTuple):
    """A frozen model, its question and answers, and the pairs."""

    frozen: Frozen
    wording: Wording
    labels: Labels
    parts: Parts
    digest: str  # SHA-256 of the pairs


class Tuned(NamedTuple):
    """The result of tuning `A` arms."""

    arms: list[tuple[int, float]]  # seed and learning rate
    first: np.ndarray  # float32 [A, P, D], before the first step
    prompts: np.ndarray  # float32 [A, P, D], the best on dev
    best: np.ndarray  # [A, 2], their accuracy and AUC on dev
    steps: np.ndarray  # [A], steps after which they were reached
    wordings: tuple[Wording, ...] = ()  # of each arm; empty: that of the task

    def task(self, task: Task, arm: int) -> Task:
        """Return the task in the wording of an arm."""
        return task._replace(wording=self.wordings[arm]) if self.wordings else task

    @property
    def chosen(self) -> int:
        """The arm with the best accuracy on dev; ties: higher AUC, then earlier step, then first arm."""
        return max(range(len(self.arms)), key=lambda a: (*self.best[a].tolist(), -int(self.steps[a]), -a))


def arms_of(config: JudgeSettings) -> list[tuple[int, float]]:
    """Return the seed and learning rate of every arm, a tuned prompt."""
    return [(int(seed), float(rate)) for rate in config.optim.lr for seed in config.seeds]


def make_program(config: JudgeSettings, model: Any, labels: Labels, mesh: Any = None) -> TuneProgram:
    """Return the functions of tuning and scoring, for the caller to compile."""
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
    """Tune a prompt for each seed and learning rate, from the newest checkpoint in `root` on.

    Raises UserError if a pair is too long, a loss is not finite, or a checkpoint is not usable; Terminated after
    SIGTERM, when the last step is saved.
    """
    arms, steps, params = arms_of(config), config.train.steps, task.frozen.params
    placement = Placement(make_mesh(*tune_mesh(config, len(jax.devices()), len(arms))), REPLICATED)
    mesh = placement.mesh
    program = make_program(config, task.frozen.model, task.labels, mesh)
    widths, length = config.batch.widths, config.prompt.length
    encode = task.frozen.encoder(task.wording, task.labels, length, config.truncate, max(widths))
    texts = [pair.texts for pair in task.parts.train]
    yes, pad = preserved_of(task.parts.train), task.frozen.model.pad_token
    batches = PairBatches(encode(texts, "train pair"), yes, widths, config.batch.size, pad, config.split.seed)
    seeds = [seed for seed, _ in arms]
    first = initial_prompts(task.frozen, seeds, config.prompt, task.labels, [*itertools.chain(*texts)])
    frozen = jax.device_put(params, weights_shardings(params, mesh, config.parallel.fsdp))
    keys = jax.device_put(jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32)), replicated(mesh))
    on_dev = dev_scores(config, task, encode, program, placement)

    with Checkpoints(root) as checkpoints, Preemption() as preemption:
        state, lines, losses = _restore_or_begin(config, task, program, placement, checkpoints, first)
        formats, by_arm = placement.shardings(state), arm_sharding(mesh)
        step_arms = jax.jit(program.tune_step, donate_argnums=0, out_shardings=(formats, by_arm))
        keep = jax.jit(keep_best, donate_argnums=0, out_shardings=formats)
        done = int(state.step)
        if done:
            print(f"going on from the checkpoint of step {done}")
        with MetricsLog(root, done, lines) as log, ProgressLine("tune", steps, done) as progress:
            for step in range(done + 1, steps + 1):
                state, metrics = step_arms(state, put_batch(batches(step - 1), mesh), frozen, keys)
                losses.append(metrics["loss"])
                shown, last = "", step == steps or preemption.stop_after(step)
                evaluates = step % config.train.eval_every == 0 or step == steps
                saves = step % config.train.save_every == 0
                if evaluates or saves:
                    shown, losses = _log(log, step, losses, arms), []
                if evaluates:
                    figures = on_dev(state.prompt, frozen)
                    state = keep(state, jax.device_put(figures, by_arm))
                    best = figures[int(figures[:, 0].argmax())]
                    shown = f"{shown}, dev accuracy {best[0]:.3f}, AUC {best[1]:.3f}"
                    accuracies, areas = figures.T
                    log.add(step, _by_arm("dev_accuracy", accuracies, arms) | _by_arm("dev_auc", areas, arms))
                if saves or last:
                    # Losses since the last log entry, after SIGTERM, go into the resumed run's mean.
                    unlogged = [to_host(loss).tolist() for loss in losses]
                    checkpoints.save(step, state, {"pairs": task.digest, "log": log.lines, "losses": unlogged})
                progress.advance(1, shown)
                if last:
                    break
        checkpoints.wait()
    last_state = to_host(state)
    return Tuned(arms, first, last_state.best_prompt, last_state.best, last_state.best_step)


def tune_mesh(config: JudgeSettings, devices: int, arms: int) -> tuple[int, int]:
    """Return the numbers of devices along `arm`, which has most if not `parallel.fsdp`, and `data`.

    Raises UserError if `parallel.mesh` does not fit the devices, the arms or the batch.
    """
    wanted = config.parallel.mesh
    if arms_mapping(config.parallel) == "map":
        wanted = (1, wanted[1])
    elif config.parallel.fsdp and not any(wanted):
        wanted = (0, math.gcd(devices, config.batch.size))
    return mesh_shape(devices, arms, config.batch.size, wanted)


def _restore_or_begin(
    config: JudgeSettings, task: Task, program: TuneProgram, placement: Placement, saved: Checkpoints, first: np.ndarray
) -> tuple[TuneState, list[str], list[jax.Array]]:
    """Return state, logged lines and losses since then of the newest checkpoint, else before the first step."""
    shapes = program.state_shapes(config.prompt.length)
    restored = saved.restore(placement.abstract(shapes))
    if restored is None:
        begin = jax.jit(program.initial_state, out_shardings=placement.shardings(shapes))
        return begin(jnp.asarray(first)), [], []
    _, state, info = restored
    if info.get("pairs") != task.digest:
        raise UserError(f"{saved.directory}: the checkpoint was tuned on other pairs; take another --workdir.")
    return state, info["log"], [jnp.asarray(loss, jnp.float32) for loss in info.get("losses", [])]


def _by_arm(name: str, values: np.ndarray, arms: Sequence[tuple[int, float]]) -> dict[str, float]:
    """Return name in the log, such as loss/seed_0_lr_0.3 -> value, for values `[A]`."""
    return {f"{name}/seed_{seed}_lr_{rate:g}": float(v) for (seed, rate), v in zip(arms, values, strict=True)}


def _log(log: MetricsLog, step: int, losses: Sequence[jax.Array], arms: Sequence[tuple[int, float]]) -> str:
    """Log each arm's mean of `losses`, each `[A]`; return the mean as text. Raises UserError if not finite."""
    mean = np.mean([to_host(loss) for loss in losses], axis=0)
    if not np.isfinite(mean).all():
        seed, rate = arms[int(np.flatnonzero(~np.isfinite(mean))[0])]
        raise UserError(
            f"steps {step - len(losses) + 1} to {step}: loss of seed {seed}, lr {rate:g} is not finite; lower optim.lr."
        )
    log.add(step, _by_arm("loss", mean, arms))
    return f"loss {mean.mean():.3f}"


def dev_rows(config: JudgeSettings, program: TuneProgram, width: int) -> int:
    """Return how many pairs are scored at once: up to 4 batches, as scoring keeps no activations."""
    rows = 4 * config.batch.size
    return rows // program.pieces(rows, width // 4)


def dev_scores(
    config: JudgeSettings, task: Task, encode: Encoder, program: TuneProgram, placement: Placement
) -> Callable[[jax.Array, Any], np.ndarray]:
    """Return a function of prompts `[A, P, D]` and weights: accuracy and AUC on dev, float32 `[A, 2]`."""
    pairs, pad = task.parts.dev, task.frozen.model.pad_token
    yes, ids = preserved_of(pairs), encode([pair.texts for pair in pairs], "dev pair")
    size = functools.partial(dev_rows, config, program)
    batches = [
        (rows, put_batch(block(ids, yes, rows, width, size(width), pad), placement.mesh))
        for rows, width in slices(list(map(len, ids)), config.batch.widths, size)
    ]
    step = jax.jit(program.score_step, out_shardings=replicated(placement.mesh))

    def evaluate(prompt: jax.Array, frozen: Any) -> np.ndarray:
        scores = np.zeros((len(prompt), len(yes)))  # probability that the meaning is kept
        pending = [(rows, step(prompt, batch, frozen)) for rows, batch in batches]
        for rows, answers in pending:
            answers = to_host(answers)[:, : len(rows)].astype(float)
            scores[:, rows] = special.expit(answers[..., 0] - answers[..., 1])
        return np.array([(accuracy(row, yes), auc(row, yes)) for row in scores], np.float32)

    return evaluate


def with_examples(wording: Wording, pairs: Sequence[Pair], words: Sequence[str], shots: int, seed: int) -> Wording:
    """Return the wording with answered pairs before it as examples, drawn at random; half preserve the meaning.

    `words` are the answers yes and no. Of an odd number of `shots`, the extra one preserves the meaning. Raises
    UserError if there are too few pairs.
    """
    rng = np.random.default_rng([seed, 2])
    order, drawn = rng.permutation(len(pairs)), list[Pair]()
    for preserved, count in ((True, (shots + 1) // 2), (False, shots // 2)):
        examples = [pairs[i] for i in order if pairs[i].preserved == preserved][:count]
        if len(examples) < count:
            raise UserError(
                f"shots is {shots}, which takes {count} train pairs that {'keep' if preserved else 'lose'} the "
                f"meaning, but there are only {len(examples)}; lower shots, or give more such pairs."
            )
        drawn += examples
    shuffled = (drawn[i] for i in rng.permutation(len(drawn)))
    lines = [wording.answered(pair.reference, pair.hypothesis, words[not pair.preserved]) for pair in shuffled]
    return dataclasses.replace(wording, before="\n".join([*lines, ""]))


def prompt_with_examples(config: JudgeSettings, task: Task) -> Tuned:
    """Evaluate the examples of each seed, an arm with an empty prompt, on dev."""
    pairs = [pair.texts for pair in task.parts.dev]
    yes, n = preserved_of(task.parts.dev), len(config.seeds)
    prompts, wordings, best = np.zeros((n, 0, task.frozen.model.spec.d_model), np.float32), [], []
    for prompt, seed in zip(prompts, config.seeds, strict=True):
        wording = with_examples(task.wording, task.parts.train, task.labels.words, config.shots, seed)
        scores = Asker(task.frozen, prompt, wording, task.labels, config.truncate).scores(pairs, "dev pair")
        wordings.append(wording)
        best.append((accuracy(scores, yes), auc(scores, yes)))
    arms = [(seed, 0.0) for seed in config.seeds]
    return Tuned(arms, prompts, prompts, np.array(best, np.float32), np.zeros(n, int), tuple(wordings))
