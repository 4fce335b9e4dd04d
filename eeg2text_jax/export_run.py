"""Export an arm of a finished run: its best parameters, its configuration and a model card."""

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
from eeg2text_jax.study.config_file import read_configuration
from eeg2text_jax.study.grid import Arm
from eeg2text_jax.study.sections import read_settings
from eeg2text_jax.study.study import Study
from eeg2text_jax.study.workdir import Workdir, find_workdir
from eeg2text_jax.training.waves import trained_arm


def export_run(root: str, out: str, arm: str = "") -> Arm:
    """Write the best parameters of one arm of the run in `root` as a checkpoint folder `out`.

    Args:
      root: workdir of a finished run.
      out: the folder to write.
      arm: `condition/seed`; empty: the first arm trained on EEG, or the first arm if none was.

    Returns:
      The arm.

    Raises:
      UserError: `root` holds no finished run, the arm does not exist, or `out` cannot be written.
    """
    study = finished_study(root)
    number = arm_number(study.arms, arm)
    params = trained_arm(study, number)
    chosen = study.arms[number]
    write_export(study, chosen, params, out)
    return chosen


def finished_study(root: str) -> Study:
    """Open the study of a finished run.

    Raises:
      UserError: `root` holds no finished run, or one of its files was changed.
    """
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
    """Return the `Exported` object of these parameters without writing a folder."""
    _check_writes(study)
    generation = GenerationSpec.from_fields(study.config.decode.fields(), study.model)
    return Exported(study.model, params, study.tokenizer, generation, _feeding(study))


def _check_writes(study: Study) -> None:
    if study.config.objective != "generate":
        raise UserError(
            f"{study.workdir.root}: is a run of objective={study.config.objective}, whose model writes no text; it has "
            "nothing to decode with or to export."
        )


def _check_words(study: Study) -> None:
    if len(study.data.feature_shape) > 1:
        raise UserError(
            f"{study.workdir.root}: is a run on volumes, which an export cannot be fed yet; decode them with "
            "`eeg2text decode --workdir`."
        )


def write_export(study: Study, arm: Arm, params: Params, out: str) -> None:
    """Write the parameters of one arm, with everything that decoding needs, as the folder `out`.

    Raises:
      UserError: `out` cannot be written.
    """
    _check_writes(study)
    export_checkpoint(
        study.model,
        joined(params),
        _backbone_config(study),
        study.tokenizer,
        out,
        model_card(card_facts(study, arm, os.path.basename(os.path.normpath(out)))),
        generation=GenerationSpec.from_fields(study.config.decode.fields(), study.model).to_fields(),
        feeding=_feeding(study),
    )


def _feeding(study: Study) -> Feeding:
    _check_words(study)
    if study.samples.prompts is not None:
        raise UserError(
            f"{study.workdir.root}: its prompts hold fields of each sample (text.template), which an export cannot be "
            "fed; decode them with `eeg2text decode --workdir`."
        )
    base = study.config.model.checkpoint if study.model.shared_frozen else ""
    if study.model.shared_frozen and not (base and study.model.spec.encoder is None):
        raise UserError(
            f"{study.workdir.root}: its frozen language model has random weights or an encoder; an export holds no "
            "frozen model, so model.checkpoint must name a decoder-only checkpoint."
        )
    config, samples = study.config, study.samples
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
    """Return the facts for an arm's model card; scores are included once the run was scored."""
    scores, signatures = _scores(study.workdir, arm)
    return CardFacts(
        name=name,
        backbone=study.config.model.backbone,
        started_from=study.config.model.checkpoint or "random weights",
        arm=f"{arm.condition}, seed {arm.seed}",
        data=f"{study.config.data.source}, {len(study.split.parts['train'])} training samples",
        features=study.data.features_are,
        n_features=study.data.n_features,
        base=study.config.model.checkpoint if study.model.shared_frozen else "",
        lora=study.config.optim.trainable == "lora",
        alone=study.model.spec.encoder is None,
        split=study.split.digest(),
        config_hash=study.config_digest,
        scores=scores,
        signatures=signatures,
    )


def _scores(workdir: Workdir, arm: Arm) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the rows of the arm's cells in `results.json`, and the signature of each metric."""
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
    """Return the index of the arm `wanted`; if empty, of the first arm trained on EEG, else of the first arm.

    Raises:
      UserError: no arm has this name.
    """
    names = [str(arm) for arm in arms]
    if not wanted:
        return next((i for i, arm in enumerate(arms) if arm.condition == "eeg"), 0)
    if wanted not in names:
        raise UserError(f"--arm is {wanted!r}; this run has {', '.join(names)}.")
    return names.index(wanted)


def _backbone_config(study: Study) -> PretrainedConfig:
    """Return the Hugging Face configuration of the study's backbone."""
    config = study.config.model
    if config.checkpoint:
        return checkpoint_config(checkpoint_folder(config.checkpoint), study.tokenizer)
    return random_config(config.backbone, dict(config.shape), study.tokenizer)
