"""Make the training program of each stage; contrastive (CLIP, Radford et al. 2021) and reconstruction objectives."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, Mesh

from eeg2text_jax.base.devices.hosts import to_host
from eeg2text_jax.base.devices.mesh import DATA, arms_mapping, put_batch
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.batches import Batch, each_evaluation_batch
from eeg2text_jax.instrument.workdir import Workdir
from eeg2text_jax.models.backbones.mapping import flatten
from eeg2text_jax.models.brain import ReconstructionModel
from eeg2text_jax.models.functional import AnyModel, ContrastiveModel, unit_length
from eeg2text_jax.models.layers import at_padding
from eeg2text_jax.models.pretrained.load import frozen_params
from eeg2text_jax.training.conditions._donors import some_rows
from eeg2text_jax.training.sections import OptimSettings, Settings
from eeg2text_jax.training.step import GridProgram, make_optimizer, reconstruction_loss, trainable_only, without_frozen
from eeg2text_jax.training.study import Arm, Study, StudyArrays, init_keys

# Stages: reconstruct snapshots, reconstruct series, step one of two-step training (an option of the code of Jo et al.
# 2024, arXiv:2405.06459), text. Each is a study with another model or settings in its own folder (text: the workdir).
# It starts from the best parameters of the stage before where names match, else as a run of one stage does.

RECONSTRUCTIONS = ("snapshot", "series")
ALONE = {"pretrain.enabled": False, "step_one.steps": 0}  # settings that turn the other stages off


def stages(study: Study) -> list[Study]:
    """Return a study for each stage, text last; their field `before` is the previous stage."""
    chain: list[Study] = []
    for name in stage_names(study.config):
        before = chain[-1] if chain else None
        if name == "step_one":
            step_one = study.config.step_one
            changes = {"train.steps": step_one.steps, "optim.lr": step_one.lr, "optim.trainable": "first"}
            stage = dataclasses.replace(study, config=study.config.changed({**ALONE, **changes}))
        else:
            stage = _reconstruction(study, name)
        chain.append(dataclasses.replace(stage, workdir=Workdir(study.workdir.root / name), before=before))
    return [*chain, dataclasses.replace(study, before=chain[-1]) if chain else study]


def stage_names(config: Settings) -> list[str]:
    """Return the names, also of folders, of the stages before text."""
    first = [name for name in RECONSTRUCTIONS if config.pretrain.enabled and getattr(config.pretrain, name).steps]
    return [*first, *(["step_one"] if config.step_one.steps else [])]


def stage_before(study: Study) -> Study | None:
    """Return the stage whose best parameters initialize the stage `study`; None for the first."""
    return study.before or next(iter(stages(study)[-2::-1]), None)


def frozen_paths(config: Settings, model: AnyModel) -> tuple[str, ...]:
    """Return the paths of frozen parameters; "eeg/snapshot" stands for all below it."""
    if isinstance(model, ReconstructionModel):
        return ("eeg/snapshot", "mirror") if model.of == "series" and config.pretrain.freeze_snapshot else ()
    if model.eeg is not None and model.eeg.waves is not None:
        return _frozen_waves(config.model.encoder_train, model)
    if not config.pretrain.freeze_encoder or model.eeg is None:
        return ()
    return tuple(f"eeg/{part}" for part in model.shapes["eeg"] if part != "bridge")


def _frozen_waves(trained: str, model: AnyModel) -> tuple[str, ...]:
    """Return the frozen paths of an encoder of waves; `trained` is `model.encoder_train`."""
    waves, kind = model.eeg.waves, model.eeg.kind
    if trained == "all":
        return ("eeg/encoder/positions",) if waves.stack.frozen_positions else ()
    # What the encoder's own folder lacks is trained.
    beside = ("bridge", *(f"conv_{n}" for n in range(len(waves.strides) - 1 if kind == "whisper" else 0)))
    leaves = (path for path in flatten(model.shapes["eeg"]) if path.partition("/")[0] not in beside)
    return tuple(f"eeg/{path}" for path in leaves if path.rpartition("/")[2] not in ("lora_a", "lora_b"))


def _reconstruction(study: Study, name: Any) -> Study:
    pretrain = study.config.pretrain
    settings = getattr(pretrain, name)
    changes = {f"optim.{field}": getattr(settings, field) for field in ("lr", "lr_end", "schedule", "warmup_steps")}
    changes |= {f"train.{field}": getattr(settings, field) for field in ("steps", "eval_every", "patience")}
    config = study.config.changed({**ALONE, **changes, "batch.size": settings.batch_size, "optim.trainable": "all"})
    text = study.model.base if isinstance(study.model, ContrastiveModel) else study.model
    model = ReconstructionModel(
        eeg=dataclasses.replace(text.eeg, prompt=()),
        of=name,
        pad_token=text.pad_token,
        hidden_share=pretrain.series.hidden if name == "series" else 0.0,
        dtype=text.dtype,
        remat=text.remat,
        keep=text.keep,
    )
    voxels = None
    if pretrain.mask:  # only voxels (or features) that vary over 200 training samples count
        least, most = np.inf, -np.inf
        for row in some_rows(study.split.parts["train"], 200):
            snapshots = study.samples.features(int(row))
            least, most = np.minimum(least, snapshots.min(axis=0)), np.maximum(most, snapshots.max(axis=0))
        voxels = jnp.asarray(least < most, jnp.float32)
    return dataclasses.replace(study, config=config, model=model, arrays=study.arrays._replace(voxels=voxels))


def study_arrays(study: Study) -> StudyArrays:
    """Return what no step changes, on the study's devices, with any shared frozen parameters."""
    return study.placement.constants(study.arrays)._replace(frozen=frozen_model(study))


def frozen_model(study: Study) -> Any:
    """Return the frozen parameters that all arms share, sharded; None if there are none."""
    if not study.model.shared_frozen:
        return None
    key, config = init_keys(study.arms[:1], study.config.seed)[0], study.config.model
    return frozen_params(study.model, config.checkpoint, key, study.placement.frozen, config.frozen_dtype)


def make_program(
    config: Settings, model: Any, arms: tuple[Arm, ...], mesh: Mesh | AbstractMesh | None = None
) -> GridProgram:
    """Return the steps of these arms; `mesh` is None for one device or for shapes alone.

    Equal settings give the same object, whose programs `base.devices.arms.jit_once` finds. UserError if
    `parallel.tensor_parallel` cannot divide the model's heads over the devices of an arm.
    """
    train = config.train
    if mesh is not None and config.parallel.tensor_parallel:
        decoder, devices = model.spec.decoder, mesh.shape[DATA]
        if (heads := math.gcd(decoder.heads, decoder.kv_heads or decoder.heads)) % devices:
            raise UserError(
                f"parallel.tensor_parallel is True, and {devices} devices share a batch; expected a divisor of {heads},"
                " the number of key heads; set the second entry of parallel.mesh, or parallel.tensor_parallel=False."
            )
    kind: Callable[..., GridProgram] = GridProgram
    own: dict[str, Any] = {}
    if isinstance(model, ReconstructionModel):
        kind, own = ReconstructionProgram, {"error": config.pretrain.loss}
    elif isinstance(model, ContrastiveModel):
        kind, own = ContrastiveProgram, {"symmetric": config.contrastive.symmetric}
    return _program(
        kind,
        config.optim,
        train.steps,
        model=model,
        arms=arms,
        mesh=mesh,
        frozen=frozen_paths(config, model),
        label_smoothing=train.label_smoothing,
        by_sentence=train.best_by == "sentences" and not isinstance(model, ReconstructionModel),
        mapping=arms_mapping(config.parallel),
        accumulate=train.accumulate,
        **own,
    )


@functools.lru_cache(maxsize=16)
def _program(kind: Callable[..., GridProgram], optim: OptimSettings, steps: int, **fields: Any) -> GridProgram:
    optimizer = without_frozen(make_optimizer(optim, steps), fields["frozen"])
    optimizer = trainable_only(optimizer, fields["model"], optim.trainable)
    return kind(optimizer=optimizer, phase=optim.trainable, **fields)


EXCLUDED = -1e30  # logit that excludes an entry from a softmax


def clip_loss(
    brain: jax.Array, text: jax.Array, sentence: jax.Array, weight: jax.Array, scale: jax.Array, symmetric: bool
) -> jax.Array:
    """Return the cross-entropy, in nats, of matching each recording to its text in the batch, summed over rows.

    `brain [B, E]` are unit-norm embeddings of recordings, float32, `text [B, E]` those of texts, of any norm above 0.
    Rows of one `sentence [B]` are no negatives of each other; `weight [B]` is 0 for padding rows. `scale`, the inverse
    temperature, multiplies the cosines. `symmetric` averages with the loss of matching texts to recordings.
    """
    logits = scale * jnp.einsum("bd,cd->bc", brain, unit_length(text), precision=jax.lax.Precision.HIGHEST)
    same = sentence[:, None] == sentence[None, :]
    diagonal = jnp.eye(len(sentence), dtype=bool)
    # Even a padding row matches itself, so that its (unused) loss stays finite.
    included = ((weight[None, :] > 0) & ~same) | diagonal
    masked = jnp.where(included, logits, EXCLUDED)
    positive = jnp.diagonal(logits)
    losses = jax.nn.logsumexp(masked, axis=1) - positive
    if symmetric:
        transposed = jnp.where(included, logits.T, EXCLUDED)
        losses = 0.5 * (losses + jax.nn.logsumexp(transposed, axis=1) - positive)
    return jnp.sum(losses * weight)


@dataclasses.dataclass(frozen=True)
class ContrastiveProgram(GridProgram):
    """Steps of the contrastive objective, with `clip_loss`."""

    model: ContrastiveModel
    symmetric: bool = True  # see `clip_loss`

    def _gradient(self, params: Any, rows: Mapping[str, Any], key: jax.Array) -> tuple[jax.Array, Any]:
        def loss(params: Any, rows: Mapping[str, Any], key: jax.Array) -> jax.Array:
            total, count = self._loss(params, rows, key)
            return total / jnp.maximum(count, 1.0)

        return self._accumulated(loss, params, rows, key)

    def _loss(self, params: Any, rows: Mapping[str, Any], key: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        inputs = {"features": rows["features"], "mask": rows["mask"]}
        brain = self.model.embed(params, inputs, dropout_key=key)
        with jax.named_scope("head_loss"):
            scale = self.model.scale(params)
            loss = clip_loss(brain, rows["text"], rows["sentence"], rows["weight"], scale, self.symmetric)
            return loss, jnp.sum(rows["weight"])

    def _rows(self, batch: Batch, study: StudyArrays, step: jax.Array) -> dict[str, jax.Array]:
        """Add `sentence [A, B]`, its number, and `text [A, B, E]`, its embedding."""
        rows, sentences = super()._rows(batch, study, step), []
        for arm, place in zip(self.arms, self._places(len(batch["mask"])), strict=True):
            of_sample = study.texts.exchanged if arm.condition == "label_shuffle" else study.texts.sentence
            sentences.append(of_sample[batch["sample_id"][place]])
        sentence = jnp.stack(sentences)  # --> [A, B]
        return {**rows, "sentence": sentence, "text": study.texts.vectors[sentence]}


@dataclasses.dataclass(frozen=True)
class ReconstructionProgram(GridProgram):
    """Steps of a reconstruction stage, with `reconstruction_loss`."""

    model: ReconstructionModel
    error: str = "mae"  # "mae" or "mse"

    def _gradient(self, params: Any, rows: Mapping[str, Any], key: jax.Array) -> tuple[jax.Array, Any]:
        rows = dict(rows)
        voxels = rows.pop("voxels", None)
        count = jnp.maximum(jnp.sum(rows["mask"].astype(jnp.float32) * rows["weight"][:, None]), 1.0)

        def loss(params: Any, rows: Mapping[str, Any], key: jax.Array) -> jax.Array:
            total, judged = self._loss(params, {**rows, "voxels": voxels}, key)
            # Each micro-batch draws what it hides, so its loss is the mean over these snapshots.
            snapshots = jnp.maximum(judged, 1.0) * self.accumulate
            return total / (snapshots if self.model.hidden_share else count)

        return self._accumulated(loss, params, rows, key)

    def _loss(self, params: Any, rows: Mapping[str, Any], key: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        made, judged = self.model.reconstruct(params, rows["features"], rows["mask"], dropout_key=key)
        return reconstruction_loss(rows["features"], made, judged, rows["weight"], self.error, rows.get("voxels"))

    def _rows(self, batch: Batch, study: StudyArrays, step: jax.Array) -> dict[str, jax.Array]:
        rows = super()._rows(batch, study, step)
        del rows["labels"]
        if study.voxels is not None:
            rows["voxels"] = jnp.broadcast_to(study.voxels[None], (len(self.arms), *study.voxels.shape))
        return rows


def trivial_losses(study: Study, program: Any) -> dict[str, np.ndarray]:
    """Return the dev losses `[A]` of predicting "zero", and the "mean" of each arm's inputs (1,000 train samples)."""
    arrays, config = study.placement.constants(study.arrays), study.config.batch

    def summed(of_batch: Callable[..., Any], rows: np.ndarray, *more: Any) -> Any:
        made = each_evaluation_batch(study.samples, rows, config.buckets, config.size)
        step = jax.jit(functools.partial(of_batch, program))
        sums = (step(put_batch(batch, study.placement.mesh), arrays, *more) for batch in made)
        return functools.reduce(functools.partial(jax.tree.map, jnp.add), sums)

    total, count = summed(_sums, some_rows(study.split.parts["train"], 1000))
    mean = total / count.reshape(-1, *(1,) * (total.ndim - 1))
    (zero, by_mean), number = summed(_losses_of_predictors, study.split.parts["dev"], mean)
    return {"zero": to_host(zero / number), "mean": to_host(by_mean / number)}


def _sums(program: ReconstructionProgram, batch: Batch, arrays: Any) -> tuple[jax.Array, jax.Array]:
    """Return the sum of each arm's input snapshots in a batch, `[A, ...]`, and their number `[A]`."""
    fed = program.fed(batch, arrays)
    counted = fed["mask"].astype(jnp.float32) * fed["weight"][..., None]  # [A, B, W]
    features = jnp.where(at_padding(fed["mask"], fed["features"].ndim), fed["features"], 0.0)
    return jnp.sum(features * at_padding(counted, features.ndim), axis=(1, 2)), counted.sum(axis=(1, 2))


def _losses_of_predictors(
    program: ReconstructionProgram, batch: Batch, arrays: StudyArrays, mean: jax.Array
) -> tuple[tuple, jax.Array]:
    """Return the summed losses of predicting zero and `mean [A, ...]`, and the number of snapshots, all `[A]`."""
    fed = program.fed(batch, arrays)

    def of_arm(rows: dict[str, jax.Array], mean: jax.Array) -> tuple[tuple, jax.Array]:
        features, mask, weight = rows["features"], rows["mask"], rows["weight"]
        loss = functools.partial(reconstruction_loss, kind=program.error, voxels=arrays.voxels)
        zero, number = loss(features, jnp.zeros((1,) * features.ndim), mask, weight)
        return (zero, loss(features, mean[None, None], mask, weight)[0]), number

    return jax.vmap(of_arm)({name: fed[name] for name in ("features", "mask", "weight")}, mean)
