"""Write and load exports of trained arms, which decode raw features to the text of the run."""

import dataclasses
import json
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from eeg2text_jax.base.devices.arms import joined
from eeg2text_jax.base.devices.mesh import make_mesh
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.stores.buckets import at_hand
from eeg2text_jax.data.batches import stack_features
from eeg2text_jax.data.rows import features_of
from eeg2text_jax.data.text import decode_tokens, load_tokenizer
from eeg2text_jax.decoding.generate import generate_arms, prepared_arms
from eeg2text_jax.decoding.settings import GenerationSpec
from eeg2text_jax.instrument.predictions.file import MODES
from eeg2text_jax.instrument.workdir import check_name, find_workdir, is_path, last_part, read_configuration, verdict_in
from eeg2text_jax.models.backbones.build import random_config
from eeg2text_jax.models.functional import Prepared, Seq2SeqModel
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.models.pretrained.export import CardFacts, export_checkpoint, model_card
from eeg2text_jax.models.pretrained.folder import Feeding, checkpoint_folder, read_feeding
from eeg2text_jax.models.pretrained.load import checkpoint_config, load_pretrained
from eeg2text_jax.models.pretrained.wave_folder import CLASSES
from eeg2text_jax.runs.cells import Slice, free_tokens, plan_slices, sentence_keys, special_tokens
from eeg2text_jax.runs.opening import open_finished
from eeg2text_jax.training.loop import trained_arm
from eeg2text_jax.training.sections import read_settings
from eeg2text_jax.training.study import Arm, Study


@dataclasses.dataclass(frozen=True, eq=False)
class Exported:
    """A trained model, its tokenizer, standardization and generation settings; `decode` turns features into text."""

    model: Seq2SeqModel
    params: Params
    tokenizer: PreTrainedTokenizerBase
    generation: GenerationSpec
    feeding: Feeding  # how recordings are standardized, and the batch shapes of the run

    def decode(
        self,
        features: Sequence[np.ndarray] | np.ndarray,
        mask: np.ndarray | None = None,
        *,
        sample_ids: Sequence[int] | None = None,
    ) -> list[str]:
        """Return the free-running text of each recording: of a run's test samples in order, the run's predictions.

        Args:
          features: an array `[W, F]` of raw features for each recording, as in the data file, or `[N, W, F]` with
            `mask`. What exceeds the run's `data.max_words` is cut, with a warning.
          mask: `[N, W]` bool, True at real words, which come first.
          sample_ids: numbers in the data file (default: 0, 1, ...), which choose the draws of sampling.

        Raises:
          UserError: features have another width, dtype or shape, or are not finite; the mask is missing or wrong.
        """
        feeding = self.feeding
        recordings = _recordings(features, mask, len(feeding.mean))
        lengths = np.array([len(words) for words in recordings], int)
        if cut := int((lengths > feeding.max_words).sum()):
            message = f"{cut} of {len(recordings)} recordings are cut to {feeding.max_words} words, as in the run."
            warnings.warn(message, stacklevel=2)
        ids = np.arange(len(recordings)) if sample_ids is None else np.asarray(sample_ids)
        if ids.shape != lengths.shape:
            raise UserError(
                f"sample_ids has shape {list(ids.shape)}; expected [{len(recordings)}], one number for each recording."
            )
        lengths = np.minimum(lengths, feeding.max_words)
        longer = [feeding.max_words] if (lengths > max(feeding.buckets)).any() else []
        params = jax.tree.map(lambda leaf: leaf[None], joined(self.params))
        params = prepared_arms(self.model, params, self.generation)
        texts = [""] * len(recordings)
        for part in plan_slices(lengths, [*feeding.buckets, *longer], feeding.batch_size):
            decoded = self._decode_batch(params, [recordings[i] for i in part.samples], part, ids)
            for i, text in zip(part.samples[: part.real], decoded, strict=True):
                texts[i] = text
        return texts

    def prompts(self, features: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the decoder's input for recordings `[W, F]`: float32 `[N, S, D]` and its mask `[N, S]`.

        Of a decoder-only model, the prompt with the recording, padded on the left (`inputs_embeds` of transformers);
        else the encoder's output (`encoder_outputs`).
        """
        features, mask = self._padded(_recordings(features, None, len(self.feeding.mean)))
        hidden, real = self.model.encode(self.params, {"features": features, "mask": mask})
        return np.asarray(hidden, np.float32), np.asarray(real)

    def _padded(self, recordings: Sequence[np.ndarray], width: int = 0) -> tuple[jax.Array, jax.Array]:
        """Return standardized recordings `[N, W, F]`, padded to `width` (0: the longest), and their mask."""
        words = [self.feeding.standardize(recording) for recording in recordings]
        lengths = np.array(list(map(len, words)))
        features = stack_features(words.__getitem__, range(len(words)), width or lengths.max())
        return jnp.asarray(features), jnp.asarray(np.arange(features.shape[1]) < lengths[:, None])

    def _decode_batch(
        self, params: Params | Prepared, recordings: Sequence[np.ndarray], part: Slice, ids: np.ndarray
    ) -> list[str]:
        model, spec, mesh, keys = self.model, self.generation, make_mesh(1, 1, jax.devices()[:1]), None
        if spec.do_sample:
            keys = sentence_keys(self.feeding.seed, jnp.asarray(ids[part.samples], jnp.int32))
        features, mask = self._padded(recordings, part.words)
        fed, shared, cut = {"features": features[None]}, {"mask": mask}, self.feeding.compactions
        decoded = generate_arms(model, params, fed, shared, spec, mesh, keys=keys, compactions=cut)
        tokens = free_tokens(jax.device_get(decoded), special_tokens(self.tokenizer, model))
        returned = spec.num_return_sequences
        return decode_tokens(self.tokenizer, tokens[: part.real * returned : returned])


def load_export(name: str | Path) -> Exported:
    """Load an export of `eeg2text export`.

    Args:
      name: the folder, or its name on the Hugging Face Hub.

    Raises:
      UserError: the folder is no export, or a file is missing or differs from its checksum.

    Examples:
      >>> import numpy as np
      >>> from eeg2text_jax import load, load_export
      >>> model = load_export(load("run").export("export"))
      >>> texts = model.decode([np.zeros((4, 6)), np.ones((3, 6))])
      >>> len(texts)
      2
    """
    folder = checkpoint_folder(name)
    feeding = read_feeding(folder)
    model, params = load_pretrained(folder, dtype=feeding.dtype)
    if model.eeg is None or model.eeg.features != len(feeding.mean):
        raise UserError(f"{folder}: its EEG encoder is missing or of another run; export the run again.")
    generation = GenerationSpec.from_checkpoint(folder, model)
    return Exported(model, params, load_tokenizer(folder), generation, feeding)


def _recordings(features: Any, mask: Any, width: int) -> list[np.ndarray]:
    ndim = getattr(features, "ndim", None)  # None: a list of recordings
    if ndim == 3:
        return _unpadded(np.asarray(features), mask, width)
    if mask is not None:
        raise UserError("mask goes with one array features [N, W, F]; recordings in a list have their own lengths.")
    if ndim is not None:
        raise UserError(f"features has shape {list(features.shape)}; expected a list of arrays [words, {width}].")
    return [_checked(np.asarray(words), f"features[{i}]", width) for i, words in enumerate(features)]


def _unpadded(features: np.ndarray, mask: Any, width: int) -> list[np.ndarray]:
    if mask is None:
        raise UserError(
            "features [N, W, F] need mask [N, W], True at real words; or give a list with an array for each recording."
        )
    mask = np.asarray(mask)
    if mask.shape != features.shape[:2] or mask.dtype != bool:
        raise UserError(
            f"mask is {mask.dtype} {list(mask.shape)}; expected bool {list(features.shape[:2])}, True at real words."
        )
    lengths = mask.sum(axis=1)
    if not (mask == (np.arange(mask.shape[1]) < lengths[:, None])).all():
        raise UserError("mask has a real word after a padded one; put the real words of each recording first.")
    return [
        _checked(row[:n], f"features[{i}]", width) for i, (row, n) in enumerate(zip(features, lengths, strict=True))
    ]


def _checked(words: np.ndarray, name: str, width: int) -> np.ndarray:
    if words.ndim != 2 or words.shape[1] != width or not len(words):
        raise UserError(f"{name} has shape {list(words.shape)}; expected [words, {width}] with at least one word.")
    return features_of(words, name)


def export_run(root: str, out: str, arm: str = "") -> Arm:
    """Write the best parameters of an arm (see `arm_number`) of the run in `root` to a folder; return the arm."""
    check_name(out)
    study = finished_study(root)
    number = arm_number(study.arms, arm)
    write_export(study, study.arms[number], trained_arm(study, number), out)
    return study.arms[number]


def finished_study(root: str) -> Study:
    """Return the study of the run in `root`; UserError if it is unfinished or a file was changed."""
    workdir = find_workdir(root := at_hand(root))
    try:
        config = read_settings(ConfigDict(read_configuration(workdir)))
    except KeyError as error:
        raise UserError(
            f"{workdir.config}: has no field {error.args[0]!r}; another version wrote it, so use that version, or run "
            "the configuration again in another --workdir."
        ) from error
    study = open_finished(config, root)
    workdir.check("predictions.jsonl", "results.json")
    return study


def exported(study: Study, params: Params) -> Exported:
    """Return one arm of a run as a model that decodes raw features."""
    return Exported(study.model, params, study.tokenizer, study.generation, _feeding(study))


def write_export(study: Study, arm: Arm, params: Params, out: str) -> None:
    """Write one arm's parameters, configuration, tokenizer and model card to the folder `out`."""
    feeding, model = _feeding(study), study.config.model
    if is_path(feeding.base):
        feeding = dataclasses.replace(feeding, base=os.path.relpath(feeding.base, out))
    if model.checkpoint:
        backbone: PretrainedConfig = checkpoint_config(checkpoint_folder(model.checkpoint), study.tokenizer)
    else:
        backbone = random_config(model.backbone, dict(model.shape), study.tokenizer)
    card = model_card(card_facts(study, arm, os.path.basename(os.path.normpath(out))))
    more: dict[str, Any] = {"generation": study.generation.to_fields(), "feeding": feeding, "rate": study.data.sfreq}
    export_checkpoint(study.model, joined(params), backbone, study.tokenizer, out, card, **more)


def _feeding(study: Study) -> Feeding:
    """Return how raw features become the model's input; UserError if an export cannot feed it."""
    config, samples, root = study.config, study.samples, study.workdir.root
    decode_there = "decode with `eeg2text decode --workdir`"
    if config.objective != "generate":
        raise UserError(f"{root}: is a run of objective={config.objective}, whose model writes no text to decode.")
    if len(study.data.feature_shape) > 1:
        raise UserError(f"{root}: is a run on volumes, which an export does not take yet; {decode_there}.")
    if samples.prompts is not None:
        raise UserError(f"{root}: its prompts have fields of samples, which an export does not take; {decode_there}.")
    base = config.model.checkpoint if study.model.shared_frozen else ""
    if study.model.shared_frozen and not base:
        raise UserError(
            f"{root}: an export holds no frozen language model, and this one is random; set model.checkpoint."
        )
    return Feeding(
        mean=samples.mean,
        scale=samples.scale,
        max_words=samples.max_words,
        buckets=tuple(words for words, _ in config.batch.buckets),
        batch_size=config.decode.batch_size,
        compactions=config.decode.compactions,
        seed=config.seed,
        dtype=config.model.dtype,
        features_are=study.data.features_are,
        base=base,
        base_dtype=config.model.frozen_dtype if base else "float32",
        base_fingerprint=study.frozen_digest,
    )


def card_facts(study: Study, arm: Arm, name: str) -> CardFacts:
    """Return what an arm's model card states."""
    scores, signatures = _scores(study, arm)
    config, checkpoint, frozen = study.config, study.config.model.checkpoint, study.model.shared_frozen
    published = last_part(checkpoint) if is_path(checkpoint) else checkpoint
    return CardFacts(
        name=name,
        backbone=config.model.backbone,
        started_from=published or "random weights",
        arm=f"{arm.condition}, seed {arm.seed}",
        data=f"{last_part(config.data.source)}, {len(study.split.parts['train'])} training samples",
        features=study.data.features_are,
        n_features=study.data.n_features,
        base=published if frozen else "",
        lora=config.optim.trainable == "lora",
        int8=frozen and config.model.frozen_dtype == "int8",
        alone=study.model.spec.encoder is None,
        encoder=study.model.eeg.kind in CLASSES,
        split=study.split.digest(),
        config_hash=study.config_digest,
        scores=scores,
        signatures=signatures,
        verdict=verdict_in(study.workdir.root),
    )


def _scores(study: Study, arm: Arm) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return an arm's scores of texts, a row per test condition and mode, and metric -> signature."""
    rows: list[Any] = []
    signatures: dict[str, Any] = {}
    results = study.workdir.results
    for cell in json.loads(results.read_text())["cells"] if results.exists() else ():
        is_text = cell["mode"] in MODES and cell["metrics"]  # else rankings, or an unscored cell
        if (cell["train_condition"], cell["seed"]) == (arm.condition, arm.seed) and is_text:
            row = {"evaluated on": cell["eval_condition"], "mode": cell["mode"], "samples": cell["rows"]}
            rows.append(row | {name: metric["value"] for name, metric in cell["metrics"].items()})
            signatures |= {name: metric["signature"] for name, metric in cell["metrics"].items()}
    return rows, signatures


def arm_number(arms: tuple[Arm, ...], wanted: str) -> int:
    """Return the index of the arm `condition/seed`, of "" the first trained on EEG, or 0; UserError if none."""
    names = [str(arm) for arm in arms]
    if not wanted:
        return next((i for i, arm in enumerate(arms) if arm.condition == "eeg"), 0)
    if wanted not in names:
        raise UserError(f"--arm is {wanted!r}; this run has {', '.join(names)}.")
    return names.index(wanted)
