"""The tuning loop of soft prompts: restore, then step, log, evaluate on dev and save until done."""

import dataclasses
import functools
import math
from collections.abc import Sequence
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
from eeg2text_jax.judge.pairs import Pair, PairBatches, Parts, block, slices
from eeg2text_jax.judge.wording import Encoder, Labels, Wording
from eeg2text_jax.training.checkpoint import Checkpoints, Preemption
from eeg2text_jax.training.metrics_log import MetricsLog
from eeg2text_jax.training.step import make_optimizer


class Task(NamedTuple):
    """A frozen model, the wording of its question, its two answers, and the pairs."""

    frozen: Frozen
    wording: Wording
    labels: Labels
    parts: Parts
    digest: str  # SHA-256 of the pairs


class Tuned(NamedTuple):
    """The result of tuning `A` arms (seeds times learning rates): each arm's initial prompt and its best one on dev."""

    arms: list[tuple[int, float]]  # seed and learning rate
    first: np.ndarray  # float32 [A, P, D], before the first step
    prompts: np.ndarray  # float32 [A, P, D], the best on dev
    best: np.ndarray  # [A, 2], accuracy and AUC of `prompts` on dev
    steps: np.ndarray  # [A], steps after which `prompts` were reached
    wordings: tuple[Wording, ...] = ()  # wording of each arm; empty: all arms use the task's

    def task(self, task: Task, arm: int) -> Task:
        """Return the task with the wording of an arm."""
        return task._replace(wording=self.wordings[arm]) if self.wordings else task

    @property
    def chosen(self) -> int:
        """Index of the arm with the best accuracy on dev; ties: higher AUC, then earlier step, then first arm."""
        return max(range(len(self.arms)), key=lambda a: (*self.best[a].tolist(), -int(self.steps[a]), -a))


def arms_of(config: JudgeSettings) -> list[tuple[int, float]]:
    """Return the seed and learning rate of every arm; an arm is one tuned prompt."""
    return [(int(seed), float(rate)) for rate in config.optim.lr for seed in config.seeds]


def make_program(config: JudgeSettings, model: Any, labels: Labels, mesh: Any = None) -> TuneProgram:
    """Return the functions of tuning and scoring for this configuration; the caller compiles them."""
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
    """Tune a prompt for each seed and learning rate; training resumes from the newest checkpoint in `root`.

    Raises UserError if a pair is too long, a loss is not finite, or a checkpoint cannot be written or is of other
    pairs; Terminated if SIGTERM came and a checkpoint of the last step was saved.
    """
    arms, steps, params = arms_of(config), config.train.steps, task.frozen.params
    placement = Placement(make_mesh(*tune_mesh(config, len(jax.devices()), len(arms))), REPLICATED)
    program = make_program(config, task.frozen.model, task.labels, placement.mesh)
    encode = task.frozen.encoder(
        task.wording, task.labels, config.prompt.length, config.truncate, max(config.batch.widths)
    )
    pairs = task.parts.train
    ids = encode([(pair.reference, pair.hypothesis) for pair in pairs], "train pair")
    yes, pad = np.array([pair.preserved for pair in pairs]), task.frozen.model.pad_token
    batches = PairBatches(ids, yes, config.batch.widths, config.batch.size, pad, config.split.seed)
    texts = [text for pair in pairs for text in (pair.reference, pair.hypothesis)]
    first = initial_prompts(task.frozen, [seed for seed, _ in arms], config.prompt, task.labels, texts)
    frozen = jax.device_put(params, weights_shardings(params, placement.mesh, config.parallel.fsdp))
    keys = jax.vmap(jax.random.key)(jnp.asarray([seed for seed, _ in arms], jnp.uint32))
    keys = jax.device_put(keys, replicated(placement.mesh))
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
                state, metrics = step_arms(state, put_batch(batches(step - 1), placement.mesh), frozen, keys)
                losses.append(metrics["loss"])
                shown, last = "", step == steps or preemption.stop_after(step)
                evaluates = step % config.train.eval_every == 0 or step == steps
                saves = step % config.train.save_every == 0
                if evaluates or saves:
                    shown, losses = _log(log, step, losses, arms), []
                if evaluates:
                    figures = on_dev(state.prompt, frozen)
                    state = keep(state, jax.device_put(figures, arm_sharding(placement.mesh)))
                    best = figures[int(figures[:, 0].argmax())]
                    shown = f"{shown}, dev accuracy {best[0]:.3f}, AUC {best[1]:.3f}"
                    log.add(
                        step, _by_arm("dev_accuracy", figures[:, 0], arms) | _by_arm("dev_auc", figures[:, 1], arms)
                    )
                if saves or last:
                    # After SIGTERM, losses since the last log entry are saved; the resumed run's mean has them.
                    unlogged = [to_host(loss).tolist() for loss in losses]
                    checkpoints.save(step, state, {"pairs": task.digest, "log": log.lines, "losses": unlogged})
                progress.advance(1, shown)
                if last:
                    break
        checkpoints.wait()
    final_state = to_host(state)
    return Tuned(arms, first, final_state.best_prompt, final_state.best, final_state.best_step)


def tune_mesh(config: JudgeSettings, devices: int, arms: int) -> tuple[int, int]:
    """Return the numbers of devices along the mesh axes `arm` and `data`.

    As many as possible are along `arm`, or along `data` with `parallel.fsdp`. Raises UserError if `parallel.mesh` does
    not fit the devices, the arms or the batch.
    """
    wanted = config.parallel.mesh
    if arms_mapping(config.parallel) == "map":
        wanted = (1, wanted[1])
    elif config.parallel.fsdp and not any(wanted):
        wanted = (0, math.gcd(devices, config.batch.size))
    return mesh_shape(devices, arms, config.batch.size, wanted)


def _restore_or_begin(
    config: JudgeSettings,
    task: Task,
    program: TuneProgram,
    placement: Placement,
    checkpoints: Checkpoints,
    first: np.ndarray,
) -> tuple[TuneState, list[str], list[jax.Array]]:
    """Return the state to resume from, the logged lines until then, and the losses of steps that were not logged.

    Without a checkpoint this is the state before the first step.
    """
    shapes = program.state_shapes(config.prompt.length)
    restored = checkpoints.restore(placement.abstract(shapes))
    if restored is None:
        begin = jax.jit(program.initial_state, out_shardings=placement.shardings(shapes))
        return begin(jnp.asarray(first)), [], []
    _, state, info = restored
    if info.get("pairs") != task.digest:
        raise UserError(
            f"{checkpoints.directory}: the checkpoint was tuned on other pairs; take another --workdir or restore the "
            "file of pairs."
        )
    return state, info["log"], [jnp.asarray(loss, jnp.float32) for loss in info.get("losses", [])]


def _by_arm(name: str, values: np.ndarray, arms: Sequence[tuple[int, float]]) -> dict[str, float]:
    """Return name in the log, such as loss/seed_0_lr_0.3 -> value of an arm, for values `[A]`."""
    return {f"{name}/seed_{seed}_lr_{rate:g}": float(v) for (seed, rate), v in zip(arms, values, strict=True)}


def _log(log: MetricsLog, step: int, losses: Sequence[jax.Array], arms: Sequence[tuple[int, float]]) -> str:
    """Log each arm's mean of `losses`, each `[A]`; return the overall mean as text. Raises UserError if not finite."""
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
    """Return how many pairs of `width` tokens are scored at once: up to 4 batches, as scoring keeps no activations."""
    rows = 4 * config.batch.size
    return rows // program.pieces(rows, width // 4)


class DevScores:
    """The evaluation of prompts `[A, P, D]` on the dev part: accuracy and AUC of every arm, float32 `[A, 2]`."""

    def __init__(self, config: JudgeSettings, task: Task, encode: Encoder, program: TuneProgram, placement: Placement):
        pairs = task.parts.dev
        self.yes = np.array([pair.preserved for pair in pairs])
        ids = encode([(pair.reference, pair.hypothesis) for pair in pairs], "dev pair")
        pad = task.frozen.model.pad_token
        size = functools.partial(dev_rows, config, program)
        self._batches = [
            (rows, put_batch(block(ids, self.yes, rows, width, size(width), pad), placement.mesh))
            for rows, width in slices(list(map(len, ids)), config.batch.widths, size)
        ]
        self._step = jax.jit(program.score_step, out_shardings=replicated(placement.mesh))

    def __call__(self, prompt: jax.Array, frozen: Any) -> np.ndarray:
        scores = np.zeros((len(prompt), len(self.yes)))  # probability that the meaning is kept
        pending = [(rows, self._step(prompt, batch, frozen)) for rows, batch in self._batches]
        for rows, answers in pending:
            answers = to_host(answers)[:, : len(rows)].astype(float)
            scores[:, rows] = special.expit(answers[..., 0] - answers[..., 1])
        return np.array([(accuracy(row, self.yes), auc(row, self.yes)) for row in scores], np.float32)


# Few-shot prompting instead of a tuned prompt: answered train pairs precede each pair as examples.


def with_examples(wording: Wording, pairs: Sequence[Pair], words: Sequence[str], shots: int, seed: int) -> Wording:
    """Return the wording with answered pairs before it as examples, drawn at random; half preserve the meaning.

    `words` are the two answers, yes first. If the number of examples, `shots`, is odd, the extra one preserves the
    meaning. Raises UserError if there are too few pairs of a class.
    """
    rng = np.random.default_rng([seed, 2])
    order, wanted = rng.permutation(len(pairs)), {True: (shots + 1) // 2, False: shots // 2}
    drawn: list[Pair] = []
    for preserved, count in wanted.items():
        examples = [pairs[i] for i in order if pairs[i].preserved == preserved][:count]
        if len(examples) < count:
            raise UserError(
                f"shots is {shots}, which takes {count} train pairs that {'keep' if preserved else 'lose'} the "
                f"meaning, but there are only {len(examples)}; lower shots, or give more such pairs."
            )
        drawn += examples
    lines = [
        wording.answered(pair.reference, pair.hypothesis, words[0 if pair.preserved else 1])
        for pair in (drawn[i] for i in rng.permutation(len(drawn)))
    ]
    return dataclasses.replace(wording, before="\n".join([*lines, ""]))


def prompt_with_examples(config: JudgeSettings, task: Task) -> Tuned:
    """Evaluate the model on the dev part with the examples of each seed and no soft prompt.

    Returns one arm for each seed: the wording with its examples, an empty prompt, and accuracy and AUC on dev. Raises
    UserError if there are too few train pairs, or a pair together with the examples is too long.
    """
    pairs, parts = [(pair.reference, pair.hypothesis) for pair in task.parts.dev], task.parts
    yes, width = np.array([pair.preserved for pair in parts.dev]), task.frozen.model.spec.d_model
    arms = [(seed, 0.0) for seed in config.seeds]
    prompts, wordings, best = np.zeros((len(arms), 0, width), np.float32), [], []
    for prompt, seed in zip(prompts, config.seeds, strict=True):
        wording = with_examples(task.wording, parts.train, task.labels.words, config.shots, seed)
        scores = Asker(task.frozen, prompt, wording, task.labels, config.truncate).scores(pairs, "dev pair")
        wordings.append(wording)
        best.append((accuracy(scores, yes), auc(scores, yes)))
    return Tuned(arms, prompts, prompts, np.array(best, np.float32), np.zeros(len(arms), int), tuple(wordings))
