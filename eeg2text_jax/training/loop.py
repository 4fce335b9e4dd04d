"""The training loop of all arms, and arms in waves where not all fit."""

import dataclasses
import functools
import json
import math
import os
from typing import Any

import grain
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

from eeg2text_jax.base.devices.arms import Divided, compile_step, jit_once
from eeg2text_jax.base.devices.hosts import is_main, main_decides, to_host
from eeg2text_jax.base.devices.mesh import arms_mapping, own_rows, put_batch
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import write_text
from eeg2text_jax.base.progress import ProgressLine
from eeg2text_jax.data.batches import each_evaluation_batch, training_batches
from eeg2text_jax.data.splits.split import check_same_data, check_same_split
from eeg2text_jax.instrument.workdir import Workdir, fields_digest, read_object
from eeg2text_jax.models.backbones.mapping import flatten, unflatten
from eeg2text_jax.models.brain import ReconstructionModel
from eeg2text_jax.models.functional import Seq2SeqModel, frozen_shapes
from eeg2text_jax.models.pretrained.load import start_from_checkpoint, start_of_encoder
from eeg2text_jax.training import grid_program, metrics_log
from eeg2text_jax.training.checkpoint import Checkpoints, Preemption
from eeg2text_jax.training.step import GridProgram, TrainState, keep_best, own_params
from eeg2text_jax.training.study import Study, StudyArrays, init_keys, placement_of


def train(study: Study) -> TrainState:
    """Train every arm from the newest checkpoint on; return the last state.

    UserError if a loss is not finite, or a checkpoint cannot be written; Terminated on SIGTERM.
    """
    config, placement = study.config.train, study.placement
    program = grid_program.make_program(study.config, study.model, study.arms, placement.mesh)
    profile = metrics_log.StepProfile(config.profile, study.workdir.root)

    with Checkpoints(study.workdir.root) as checkpoints, Preemption() as preemption:
        state, iterator, lines, ended = restore_or_init(study, program, checkpoints)
        prepared = PreparedStep(study, program)
        state, arrays, train_step = prepared.placed(state), prepared.arrays, prepared.step
        keep = jit_once(keep_best, donate_argnums=0, out_shardings=prepared.formats)
        dev_loss = DevLoss(study, program, arrays)
        first = int(state.step)
        if first >= config.steps or ended:
            metrics_log.write_lines(study.workdir.root, lines)
            return state
        announce(study, first)
        with (
            metrics_log.tracker_of(study) as tracker,
            metrics_log.MetricsLog(study.workdir.root, first, lines, tracker) as log,
            ProgressLine("train", config.steps, first) as progress,
            profile,
        ):
            if not first and isinstance(study.model, ReconstructionModel):
                log.add(0, metrics_log.by_arm(study.arms, grid_program.trivial_losses(study, program)))
            pace = metrics_log.Pace(study.model, len(study.arms), placement.mesh)
            pending = metrics_log.Pending(study, log, progress, pace)
            for step in range(first + 1, config.steps + 1):
                with profile.step(step):
                    batch = pending.next_batch(iterator)
                    placed = put_batch(batch, placement.mesh, study.config.batch.size, seeds=True)
                    state, metrics = train_step(state, placed, arrays)
                    pending.swap(step, batch, metrics)  # meanwhile reads those of the step before
                profile.after(step, pending.flush)
                if step % config.eval_every == 0 or step == config.steps:
                    loss = dev_loss(state.params)
                    state = keep(state, loss)
                    pending.dev(step, to_host(loss))
                    ended = metrics_log.stale(log.lines) >= config.patience > 0
                last = step == config.steps or ended or preemption.stop_after(step)
                if step % config.save_every == 0 or last:
                    pending.flush()
                    info = {"iterator": iterator.get_state(), "log": log.lines, "ended": ended}
                    checkpoints.save(step, state, {**origin(study), **info})
                if last:
                    break
        checkpoints.wait()
    return state


class PreparedStep:
    """The jitted training step of a study, which `bench` runs as well.

    `step(state, placed batch, arrays)` returns (state, metrics) and donates the state; no step changes `arrays`;
    `formats` are the state's shardings and memory layouts between steps.
    """

    def __init__(self, study: Study, program: GridProgram):
        self.formats = study.placement.formats(program.state_shapes())
        self.arrays = grid_program.study_arrays(study)
        where = jax.tree.map(lambda leaf: leaf.sharding, self.arrays)
        self.step = compile_step(program.train_step, study.placement.mesh, self.formats, where)

    def placed(self, state: TrainState) -> TrainState:
        """Return the state as `step` takes it; the argument is donated."""
        return jax.device_put(state, self.formats, donate=True)


def announce(study: Study, first: int) -> None:
    if first:
        print(f"going on from the checkpoint of step {first}")
    how = "one after the other" if arms_mapping(study.config.parallel) == "map" else "side by side"
    print(
        f"training {len(study.arms)} arms ({', '.join(map(str, study.arms))}) {how}, steps {first} to "
        f"{study.config.train.steps}, on {study.placement}"
    )


class DevLoss:
    """Function from parameters `[A, ...]` to each arm's loss on dev, or `rows`, under its training condition, `[A]`.

    In nats per token (contrastive: per recording), or the reconstruction error per snapshot.
    """

    def __init__(
        self, study: Study, program: GridProgram, arrays: StudyArrays | None = None, rows: np.ndarray | None = None
    ):
        config, mesh = study.config.batch, study.placement.mesh
        rows = study.split.parts["dev"] if rows is None else rows
        shapes = config.buckets, config.size, own_rows(mesh, config.size)
        self._make = functools.partial(each_evaluation_batch, study.samples, rows, *shapes)
        # Volumes do not fit into memory, so each evaluation reads them again.
        self._batches = list(self._make()) if len(study.data.feature_shape) == 1 else None
        self._step = jit_once(program.eval_step)
        self._place = functools.partial(put_batch, mesh=mesh, size=config.size)
        self._arrays = arrays or grid_program.study_arrays(study)

    def __call__(self, params: Any) -> jax.Array:
        batches = map(self._place, self._batches or self._make())
        losses, counts = zip(*(self._step(params, batch, self._arrays) for batch in batches), strict=True)
        return sum(losses) / sum(counts)


def restore_or_init(
    study: Study, program: GridProgram, checkpoints: Checkpoints
) -> tuple[TrainState, Any, list[str], bool]:
    """Return state, batches, log and whether training ended; UserError if a checkpoint is of another run."""
    iterator = iter(batches_of(study, study.config.train.steps))
    restored = checkpoints.restore(study.placement.abstract(program.state_shapes()))
    if restored is None:
        return make_initial_state(study, program), iterator, [], False
    _, state, info = restored
    _check_origin(study, info, checkpoints)
    iterator.set_state(info["iterator"])
    return state, iterator, info["log"], info.get("ended", False)


def batches_of(study: Study, steps: int) -> grain.IterDataset:
    """Return the first `steps` training batches of a study, with the rows of this host."""
    config, batch = study.config, study.config.batch
    seeds = list(dict.fromkeys(arm.seed for arm in study.arms))
    rows, host_rows = study.split.parts["train"], own_rows(study.placement.mesh, batch.size)
    return training_batches(study.samples, rows, batch.buckets, batch.size, config.seed, steps, seeds, host_rows)


def trained_params(study: Study) -> Any:
    """Return each arm's parameters of the lowest dev loss, `[A, ...]`, `Divided` if arms share a frozen model.

    UserError if training is not finished, or an arm never had a finite dev loss.
    """
    abstract = study.placement.abstract(grid_program.make_program(study.config, study.model, study.arms).state_shapes())
    abstract = abstract._replace(params=_unread(abstract.params), opt_state=_unread(abstract.opt_state))
    with Checkpoints(study.workdir.root, read_only=True) as checkpoints:
        step, state, info = checkpoints.restore(abstract) or (0, None, {})
        if step < study.config.train.steps and not info.get("ended", False):
            raise UserError(
                f"{checkpoints.directory}: training stands at step {step} of {study.config.train.steps}; "
                "finish it with `eeg2text train` or `eeg2text run`."
            )
        _check_origin(study, info, checkpoints)
    best = to_host(state.best_loss)
    if not np.isfinite(best).all():
        raise UserError(
            f"{checkpoints.directory}: the loss of arm {metrics_log.not_finite(study.arms, best)} on dev was never "
            "finite, so there are no best parameters; lower optim.lr, or look for extreme values in the features."
        )
    frozen = grid_program.frozen_model(study)
    return state.best_params if frozen is None else Divided(state.best_params, frozen)


def _unread(tree: Any) -> Any:
    return jax.tree.map(lambda _: ocp.PLACEHOLDER, tree)


def make_initial_state(study: Study, program: GridProgram) -> TrainState:
    """Return the state before the first step.

    A parameter comes from the first of these that has it: the best of the stage before, the pretrained encoder, the
    checkpoint, random initialization.
    """
    placement, checkpoint = study.placement, study.config.model.checkpoint
    keys = init_keys(study.arms, study.config.seed)
    paths = flatten(own_params(study.model, study.model.shapes)).keys()
    shardings = placement.shardings(program.state_shapes())
    before = grid_program.stage_before(study)
    trained = {} if before is None else flatten(trained_params(before))
    carried = {path: leaf for path, leaf in trained.items() if path in paths}
    if (name := study.config.model.encoder_checkpoint) and "eeg/bridge/kernel" not in carried:
        carried |= flatten(start_of_encoder(study.model, name, len(study.arms), placement.shardings))
        print(f"{name}: {sum(leaf[0].size for leaf in carried.values()) / 1e6:.1f} M parameters of the encoder loaded")
    if carried.keys() == paths:
        params = {}
    elif checkpoint and isinstance(study.model, Seq2SeqModel):
        start = start_from_checkpoint(study.model, checkpoint, keys, placement.shardings)
        print(f"{checkpoint}: {start.summary()}")
        params = flatten(start.params)
    else:
        state = jit_once(program.initial_state, out_shardings=shardings)(placement.constants(keys))
        if not carried:
            return state
        params = flatten(state.params)
    first_state = jit_once(program.first_state, donate_argnums=0, out_shardings=shardings)
    return first_state(unflatten(params | carried))


def origin(study: Study) -> dict[str, Any]:
    """Return what identifies the run in its checkpoints."""
    return {
        "split": study.split.digest(),
        "features": study.data.digests["features"],
        "config": fields_digest(study.config.document, "training"),
        "arms": list(map(str, study.arms)),
        "frozen": study.frozen_digest,
    }


def _check_origin(study: Study, info: dict[str, Any], checkpoints: Checkpoints) -> None:
    check_same_split(study.split.digest(), info["split"], checkpoints.directory)
    check_same_data(study.data.digests["features"], info["features"], checkpoints.directory)
    if info.setdefault("frozen", study.frozen_digest) != study.frozen_digest:  # version 0.2 wrote no such entry
        raise UserError(
            f"{study.config.model.checkpoint}: its weights are not the weights that {checkpoints.directory} was "
            "trained with; restore the original weights, or take another --workdir."
        )
    if any(info[name] != value for name, value in origin(study).items()):
        raise UserError(
            f"{checkpoints.directory}: the checkpoint is of another run (arms {', '.join(info['arms'])}, configuration "
            f"{info['config']}); take another --workdir."
        )


# Arms never communicate, so if not all fit into device memory, a wave is a study of some, with its own folder.

STATE_SHARE = 0.7  # share of device memory for training state; activations take the rest


def train_arms(study: Study) -> None:
    """Train all stages of every arm, wave by wave, but for what is finished. Raises the errors of `train`."""
    if is_main():
        study.workdir.unrecord(study.workdir.metrics.name)
    parts = arms_together(study)
    for number, part in enumerate(parts, start=1):
        if len(parts) > 1:
            print(f"wave {number} of {len(parts)}")
        *earlier, text = grid_program.stages(part)
        for stage in earlier:
            print(stage.workdir.root.name.replace("_", " "))
            train(stage)
            print(*reconstruction_lines(stage), sep="\n", end="")
        train(text)
    if is_main():
        if len(parts) > 1:
            write_text(study.workdir.metrics, "".join(part.workdir.metrics.read_text() for part in parts))
        study.workdir.record(study.workdir.metrics.name)


def reconstruction_lines(study: Study) -> list[str]:
    """Return a line per arm of a reconstruction stage: its best dev loss beside those of `TRIVIAL`."""
    if not isinstance(study.model, ReconstructionModel):
        return []
    rows, lines = metrics_log.rows_of(study.workdir.metrics), []
    for arm in study.arms:
        best = min(metrics_log.curve(rows, f"dev_loss/{arm}")[1])
        zero, mean = (rows[0][f"{name}/{arm}"] for name in metrics_log.TRIVIAL)
        lines.append(
            f"{study.model.of} of {arm} reconstructed: {study.config.pretrain.loss} {best:.4f} on dev, "
            f"{best / min(zero, mean):.1%} of the best trivial prediction (zero {zero:.4f}, mean over train {mean:.4f})"
        )
    return [*lines, ""]


def restore_log(study: Study) -> None:
    """Restore a deleted `metrics.jsonl` if all waves have checkpoints; all hosts call this together."""
    if not main_decides(lambda: int(not study.workdir.metrics.exists())):
        return
    lines: list[str] = []
    for part in arms_together(study):
        shapes = grid_program.make_program(part.config, part.model, part.arms).state_shapes()
        with Checkpoints(part.workdir.root, read_only=True) as checkpoints:
            restored = checkpoints.restore(_unread(shapes))
        if restored is None:
            return
        lines += restored[2]["log"]
    metrics_log.write_lines(study.workdir.root, lines)
    if is_main():
        study.workdir.record(study.workdir.metrics.name)


def arms_together(study: Study) -> list[Study]:
    """Return a study for each wave of arms; only the study itself if all arms fit."""
    size = main_decides(functools.partial(_arms_at_once, study))
    if size >= len(study.arms):
        return [study]
    parts = []
    for number, start in enumerate(range(0, len(study.arms), size), start=1):
        arms = slice(start, start + size)
        arrays = study.arrays._replace(dropout=study.arrays.dropout[arms])
        workdir = Workdir(study.workdir.root / f"wave_{number}")
        parts.append(dataclasses.replace(study, arms=study.arms[arms], arrays=arrays, workdir=workdir))
    return parts


def trained_arm(study: Study, number: int) -> Any:
    """Return the `trained_params` of the arm with this number, without the arm axis."""
    arm = study.arms[number]
    part = next(part for part in arms_together(study) if arm in part.arms)
    params, place = trained_params(part), part.arms.index(arm)
    take = functools.partial(jax.tree.map, lambda leaf: leaf[place])
    return params._replace(own=take(params.own)) if isinstance(params, Divided) else take(params)


def _arms_at_once(study: Study) -> int:
    """Return the number of arms in a wave, fixed at the first launch, wherever the run is resumed."""
    noted, n_arms = study.workdir.root / "waves.json", len(study.arms)
    if noted.exists():
        size = read_object(noted, advice := "restore the file, or take another --workdir").get("arms_at_once")
        if not isinstance(size, int) or size < 1:
            raise UserError(f"{noted}: arms_at_once is {size!r:.60}; expected a number of arms; {advice}.")
        return size
    if study.config.parallel.wave:
        return _even(n_arms, study.config.parallel.wave)
    if any((study.workdir.root / name).exists() for name in ("checkpoints", *grid_program.stage_names(study.config))):
        return n_arms
    size = _arms_that_fit(study)
    if size < n_arms:
        write_text(noted, json.dumps({"arms_at_once": size}) + "\n")
    return size


def _even(n_arms: int, at_once: int) -> int:
    """Return the wave size that spreads arms evenly over the fewest waves: 6 arms, at most 4 at once, give 3."""
    return math.ceil(n_arms / math.ceil(n_arms / at_once))


def _arms_that_fit(study: Study) -> int:
    """Return, and print, the largest wave size whose state fits into device memory, else the smallest."""
    arm, memory = bytes_of_an_arm(study), device_memory()
    sizes = sorted({_even(len(study.arms), at_once) for at_once in range(1, len(study.arms) + 1)}, reverse=True)
    size = next((n for n in sizes if _load(study, n, arm) <= STATE_SHARE * memory), sizes[-1])
    if size < len(study.arms) or _load(study, size, arm) > STATE_SHARE * memory:
        advice = "" if study.config.parallel.fsdp else "; parallel.fsdp=True divides the state over several devices"
        print(
            f"an arm's state and gradient take {arm / 2**30:.1f} GiB, a device has {memory / 2**30:.1f} GiB: "
            f"{size} of {len(study.arms)} arms are trained at the same time{advice}."
        )
    return size


def _load(study: Study, n_arms: int, each: int) -> float:
    """Return the bytes per device of arms of `each` bytes and the frozen model; inf if no mesh fits them."""
    try:
        arm, data = placement_of(study.config, n_arms).mesh.shape.values()
    except UserError:
        return math.inf
    return (n_arms / arm * each + frozen_bytes(study)) / (data if study.config.parallel.fsdp else 1)


def bytes_of_an_arm(study: Study) -> int:
    """Return the bytes of an arm's state and gradient."""
    shapes = grid_program.make_program(study.config, study.model, study.arms).state_shapes()
    return (_bytes(shapes) + _bytes(shapes.params)) // len(study.arms)


def _bytes(shapes: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def frozen_bytes(study: Study) -> int:
    """Return the bytes of the frozen parameters that all arms share."""
    shared = study.model.shared_frozen
    return _bytes(frozen_shapes(study.model, study.config.model.frozen_dtype)) if shared else 0


def device_memory() -> float:
    """Return the bytes of one device's memory; CPU devices share the machine's equally."""
    device = jax.local_devices()[0]
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"]
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / jax.local_device_count()


def write_reconstructions(study: Study) -> list[epath.Path]:
    """Write figures of the trained reconstruction stages; return their paths."""
    chain = [s for s in grid_program.stages(study) if isinstance(s.model, ReconstructionModel)]
    chain = [stage for stage in chain if stage.workdir.metrics.exists()]
    if not chain:
        return []
    curves = {stage.model.of: {"": metrics_log.rows_of(stage.workdir.metrics)} for stage in chain}
    figure = metrics_log.curves_figure(curves, list(map(str, study.arms)))
    figures = {study.workdir.root / "reconstruction.png": figure}
    if len(study.data.feature_shape) == 3:
        figures[study.workdir.root / "volume.png"] = metrics_log.slices_figure(*a_reconstruction(chain[-1]))
    for path, figure in figures.items():
        metrics_log.write_figure(figure, path)
    return list(figures)


def a_reconstruction(stage: Study) -> tuple[np.ndarray, np.ndarray]:
    """Return the middle volume `[X, Y, Z]` of the first dev sample, and the first arm's reconstruction."""
    rows = stage.split.parts["dev"][:1]
    batch = next(each_evaluation_batch(stage.samples, rows, stage.config.batch.buckets, 1))
    program = grid_program.make_program(stage.config, stage.model, stage.arms)
    params = jax.tree.map(lambda leaf: jnp.asarray(to_host(leaf)[0]), trained_params(stage))

    def both(params: Any) -> tuple[jax.Array, jax.Array]:
        fed = program.fed(batch, stage.arrays)
        return fed["features"][0], stage.model.reconstruct(params, fed["features"][0], fed["mask"][0])[0]

    place = int(stage.samples.n_words[rows[0]]) // 2
    inputs, made = jax.jit(both)(params)
    return np.asarray(inputs[0, place]), np.asarray(made[0, place])
