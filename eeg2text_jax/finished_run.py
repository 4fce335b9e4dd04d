"""Export an arm of a finished run."""

import dataclasses
import json
import os
from typing import Any

from ml_collections import ConfigDict
from transformers import PretrainedConfig

from eeg2text_jax.backbones.build import random_config
from eeg2text_jax.decoding.exported import Exported
from eeg2text_jax.errors import UserError
from eeg2text_jax.models.nnx_bridge import Params
from eeg2text_jax.opening import open_finished
from eeg2text_jax.parallel.arms import joined
from eeg2text_jax.pretrained.export import CardFacts, export_checkpoint, model_card
from eeg2text_jax.pretrained.export_files import Feeding
from eeg2text_jax.pretrained.folder import checkpoint_folder
from eeg2text_jax.pretrained.start import checkpoint_config
from eeg2text_jax.search.settings import GenerationSpec
from eeg2text_jax.stores.copying import at_hand
from eeg2text_jax.study.grid import Arm
from eeg2text_jax.study.places import is_path, last_part, read_configuration
from eeg2text_jax.study.sections import read_settings
from eeg2text_jax.study.study import Study
from eeg2text_jax.study.workdir import Workdir, find_workdir, verdict_in
from eeg2text_jax.training.waves import trained_arm


def export_run(root: str, out: str, arm: str = "") -> Arm:
    """Write the best parameters of one arm of the run in the workdir `root` to a checkpoint folder; return the arm.

    `arm` is the arm's name as in `arm_number`. Raises UserError if `root` has no finished run, the arm does not exist,
    or the folder `out` cannot be written.
    """
    study = finished_study(root)
    number = arm_number(study.arms, arm)
    write_export(study, study.arms[number], trained_arm(study, number), out)
    return study.arms[number]


def finished_study(root: str) -> Study:
    """Return data, split and model of the run in `root`. Raises UserError if it is unfinished or a file was changed."""
    root = at_hand(root)
    workdir = find_workdir(root)
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
    """Return one arm of a run as a model that decodes raw features, without writing a folder."""
    feeding = _feeding(study)
    generation = GenerationSpec.from_fields(study.config.decode.fields(), study.model)
    return Exported(study.model, params, study.tokenizer, generation, feeding)


def write_export(study: Study, arm: Arm, params: Params, out: str) -> None:
    """Write the parameters of one arm, its configuration, tokenizer and model card to the folder `out`."""
    feeding, model = _feeding(study), study.config.model
    if is_path(feeding.base):
        feeding = dataclasses.replace(feeding, base=os.path.relpath(feeding.base, out))
    if model.checkpoint:
        backbone: PretrainedConfig = checkpoint_config(checkpoint_folder(model.checkpoint), study.tokenizer)
    else:
        backbone = random_config(model.backbone, dict(model.shape), study.tokenizer)
    export_checkpoint(
        study.model,
        joined(params),
        backbone,
        study.tokenizer,
        out,
        model_card(card_facts(study, arm, os.path.basename(os.path.normpath(out)))),
        generation=GenerationSpec.from_fields(study.config.decode.fields(), study.model).to_fields(),
        feeding=feeding,
    )


def _feeding(study: Study) -> Feeding:
    """Return how raw features become the model's input. Raises UserError for a model that an export cannot feed."""
    if study.config.objective != "generate":
        raise UserError(
            f"{study.workdir.root}: is a run of objective={study.config.objective}, whose model writes no text; it has "
            "nothing to decode with or to export."
        )
    if len(study.data.feature_shape) > 1:
        raise UserError(
            f"{study.workdir.root}: is a run on volumes, which an export does not take yet; decode with "
            "`eeg2text decode --workdir`."
        )
    if study.samples.prompts is not None:
        raise UserError(
            f"{study.workdir.root}: its prompts have fields of each sample (text.template), which an export does not "
            "take; decode with `eeg2text decode --workdir`."
        )
    config, samples = study.config, study.samples
    base = config.model.checkpoint if study.model.shared_frozen else ""
    if study.model.shared_frozen and not (base and study.model.spec.encoder is None):
        raise UserError(
            f"{study.workdir.root}: its frozen language model has random weights or an encoder; an export holds no "
            "frozen model, so model.checkpoint must name a decoder-only checkpoint."
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
    """Return what an arm's model card states: data, model, split, and scores if the run has any."""
    scores, signatures = _scores(study.workdir, arm)
    return CardFacts(
        name=name,
        backbone=study.config.model.backbone,
        started_from=_published(study.config.model.checkpoint) or "random weights",
        arm=f"{arm.condition}, seed {arm.seed}",
        data=f"{last_part(study.config.data.source)}, {len(study.split.parts['train'])} training samples",
        features=study.data.features_are,
        n_features=study.data.n_features,
        base=_published(study.config.model.checkpoint) if study.model.shared_frozen else "",
        lora=study.config.optim.trainable == "lora",
        int8=study.model.shared_frozen and study.config.model.frozen_dtype == "int8",
        alone=study.model.spec.encoder is None,
        split=study.split.digest(),
        config_hash=study.config_digest,
        scores=scores,
        signatures=signatures,
        verdict=verdict_in(study.workdir.root),
    )


def _published(checkpoint: str) -> str:
    """Return a checkpoint's name on the Hub, or the last part of its path."""
    return last_part(checkpoint) if is_path(checkpoint) else checkpoint


def _scores(workdir: Workdir, arm: Arm) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return an arm's scores in `results.json`, a row per test condition and mode, and metric -> signature."""
    if not workdir.results.exists():
        return [], {}
    rows: list[Any] = []
    signatures: dict[str, Any] = {}
    for cell in json.loads(workdir.results.read_text())["cells"]:
        if (cell["train_condition"], cell["seed"]) != (arm.condition, arm.seed) or not cell["metrics"]:
            continue
        row = {"evaluated on": cell["eval_condition"], "mode": cell["mode"], "samples": cell["rows"]}
        rows.append(row | {name: metric["value"] for name, metric in cell["metrics"].items()})
        signatures |= {name: metric["signature"] for name, metric in cell["metrics"].items()}
    return rows, signatures


def arm_number(arms: tuple[Arm, ...], wanted: str) -> int:
    """Return the index of the arm with the name `wanted` (`condition/seed`). Raises UserError if there is none.

    Without a name, the index is that of the first arm trained on EEG, or 0 if no arm was.
    """
    names = [str(arm) for arm in arms]
    if not wanted:
        return next((i for i, arm in enumerate(arms) if arm.condition == "eeg"), 0)
    if wanted not in names:
        raise UserError(f"--arm is {wanted!r}; this run has {', '.join(names)}.")
    return names.index(wanted)
