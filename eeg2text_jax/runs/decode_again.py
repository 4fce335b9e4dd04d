"""Decode a finished run again, perhaps a stranger's, as evidence of origin; nothing of its folder is executed.

Configuration, data and checkpoints come from it; split, tokenizer and other derived files are made again elsewhere.
"""

import contextlib
import dataclasses
import io
import itertools
import json
import math
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from etils import epath
from ml_collections import ConfigDict

from eeg2text_jax.base.devices.arms import Divided
from eeg2text_jax.base.devices.hosts import check_devices, to_host
from eeg2text_jax.base.errors import UserError, named
from eeg2text_jax.base.stores.buckets import at_hand, is_address
from eeg2text_jax.data.splits.certificate import certify_data
from eeg2text_jax.data.splits.methods import FROM_FILE, make_folds
from eeg2text_jax.data.splits.split import Split, read_split_file, write_split_file
from eeg2text_jax.instrument.auditing.notices import Origin, Provenance
from eeg2text_jax.instrument.predictions.file import PredictionSet, write_predictions
from eeg2text_jax.instrument.predictions.rankings import RankingSet, write_rankings
from eeg2text_jax.instrument.workdir import (
    ADDED,
    OPENED,
    STAGES,
    Workdir,
    find_workdir,
    is_of_its_run,
    product,
    read_configuration,
    read_object,
)
from eeg2text_jax.models.pretrained.folder import offline
from eeg2text_jax.runs import pipeline
from eeg2text_jax.runs.opening import check_before
from eeg2text_jax.training.configuration import load_config
from eeg2text_jax.training.grid_program import make_program
from eeg2text_jax.training.loop import DevLoss, arms_together, trained_params
from eeg2text_jax.training.metrics_log import curve, rows_of
from eeg2text_jax.training.sections import Settings, checked_settings, fields, with_stored_steps
from eeg2text_jax.training.study import Study, open_data, open_study

TOLERANCE = 1e-3  # relative and absolute, of `COMPUTED` numbers of two devices
COMPUTED = ("nll", "score", "scores")
RANKS = ("rank", "stratum_rank")  # the file's reader has checked that they follow from `scores`
LOSS_TOLERANCE = 5e-3  # relative, of a loss on the dev part
ABOVE_LOG = 0.1  # relative; by so much a loss on the train part may exceed the logged one
MOST = 2000  # most samples of a part whose loss is computed
AS_IT_IS = "leave --again out to audit the file as it is"


class Again(NamedTuple):
    """The provenance of rows decoded again, and the audit's options about the run's data."""

    provenance: Provenance
    facts: dict[str, Any]  # see `pipeline.facts_of`


class Checks:
    """Sentences on what was checked and what was not."""

    def __init__(self) -> None:
        self.checked: list[str] = []
        self.not_checked: list[str] = []

    def add(self, is_checked: bool, sentence: str) -> None:
        (self.checked if is_checked else self.not_checked).append(sentence)


def decode_again(stored: PredictionSet | RankingSet) -> Again:
    """Decode with the checkpoints beside a file of predictions or rankings; UserError if a row differs."""
    if not is_of_its_run(stored):
        raise UserError(
            f"{stored.path}: is not in the workdir of the run that wrote it, so it cannot be decoded again; give the "
            "file in its workdir (with config.json, split.json, finished.json and checkpoints), or leave --again out."
        )
    root = epath.Path(at_hand(str(epath.Path(stored.path).parent)))
    with tempfile.TemporaryDirectory() as place, offline():
        try:
            return _decode_again(stored, find_workdir(str(root)), Workdir(epath.Path(place)))
        except UserError:
            raise
        except Exception as error:  # a forged folder can make any library raise anything
            raise UserError(f"{root}: cannot be decoded again ({named(error)[:300]}); {AS_IT_IS}.") from error


def _decode_again(stored: PredictionSet | RankingSet, folder: Workdir, scratch: Workdir) -> Again:
    config, checks = own_settings(folder), Checks()
    check_devices()
    check_before(config)
    if not product(folder, "training"):
        raise UserError(f"{folder.root}: has no checkpoint, so nothing can be decoded again; leave --again out.")
    folder.check(*OPENED, folder.metrics.name)
    with contextlib.redirect_stdout(io.StringIO()):  # what a run prints when it makes these files
        study = _open_again(config, folder, scratch, checks)
    facts = pipeline.facts_of(study)
    study = dataclasses.replace(study, workdir=folder)
    if ranked := isinstance(stored, RankingSet):
        rows = pipeline.ranked_rows(study, pipeline.candidates_of(study))
        written = scratch.rankings
        write_rankings(written, pipeline.header_of_rankings(study), rows)
    else:
        header = pipeline.header_of_predictions(study)
        theirs = stored.header.get("decode")
        named = theirs if isinstance(theirs, Mapping) else header["decode"]
        header["decode"] = {  # without what version 0.2 lacked, if the file lacks it and it does nothing
            name: value
            for name, value in header["decode"].items()
            if name in named or value != ADDED.get(f"decode.{name}", ...)
        }
        if place := first_difference(json.loads(json.dumps(header)), dict(stored.header)):
            raise UserError(
                f"{stored.path}: {place} in its header is not what its configuration and data give; another version of "
                f"eeg2text_jax or of tokenizers may have written it; {AS_IT_IS}."
            )
        written = scratch.predictions
        write_predictions(written, header, pipeline.decoded_rows(study))
    count = compare_files(epath.Path(stored.path), written)
    checks.checked.insert(0, "the header and every field of every row are what these checkpoints, this configuration "
                             f"and these data give again (computed numbers within {TOLERANCE:.1%})")  # fmt: skip
    _check_losses(study, checks)
    verb = "ranked by this command" if ranked else "by this command"
    statement = f"{verb} with the checkpoints beside the file, and all {count} rows are the same"
    provenance = Provenance(Origin.DECODED_AGAIN, statement, tuple(checks.checked), tuple(checks.not_checked))
    return Again(provenance, facts)


def own_settings(folder: Workdir) -> Settings:
    """Return a workdir's configuration with our defaults in all fields on which no row depends.

    So no cache, tracker or text encoder of a stranger is used; an address in another field is a UserError.
    """
    config = checked_settings(ConfigDict(read_configuration(folder)))
    neutral = [name for name in STAGES[""].fields if name != "retrieval"]  # which says whether rankings were written
    changes = {
        name: value
        for name, value in fields(load_config("default"))
        if any(name == other or name.startswith(f"{other}.") for other in neutral)
    }
    config = config.changed({**changes, "compilation_cache": ""})
    for name, value in fields(ConfigDict(config.document)):
        if isinstance(value, str) and (is_address(value) or "://" in value):
            raise UserError(
                f"{folder.config}: {name} is {value!r:.100}, and --again reads from no address; copy it to this "
                "machine and name the copy there, or leave --again out."
            )
    return config


def _open_again(config: Settings, folder: Workdir, scratch: Workdir, checks: Checks) -> Study:
    """Return the study with split, tokenizer and text targets made again in `scratch`."""
    config = with_stored_steps(config, read_configuration(folder))
    source, stated, opened = config.data.source, read_split_file(folder.split), config
    if source == "synthetic":
        checks.add(True, "the data were made again from data.synthetic")
    else:
        if not source.endswith(".h5"):
            opened = config.changed({"data.source": str(folder.data)})
        what = f"{Path(source).name} was not prepared again, so the recordings may not be what they are said to be"
        checks.add(False, f"where the data come from: {what}")
    if config.split.method == FROM_FILE:
        data = open_data(opened, scratch)
        split = stated.resolve(data)
        write_split_file(scratch.split, certify_data(data, split, config.split.ratio))
        number = _fold_number(folder, split, data)
        made_again = f"the split was made again: it is fold {number} of the division in folds.json"
        checks.add(bool(number), made_again if number else "by which rule the split file divided the samples")
    else:
        checks.add(True, f"the split was made again (split.method={config.split.method}, seed {config.split.seed})")
    _tokenizer(config, folder, scratch, checks)
    study = open_study(opened, scratch)
    if study.split.digest() != stated.resolve(study.data).digest():
        raise UserError(
            f"{folder.split}: is not the split that split.method={config.split.method} makes of the data, so these "
            f"test samples may have been trained on; {AS_IT_IS}."
        )
    return dataclasses.replace(study, config=study.config.changed({"data.source": source}))


def _fold_number(folder: Workdir, split: Split, data: Any) -> int:
    """Return which fold of the `folds.json` above a split is, from 1; 0: none."""
    noted = folder.root.parent / "folds.json"
    if not noted.exists():
        return 0
    about = read_object(noted, "restore the file")
    with contextlib.suppress(UserError, KeyError, TypeError, ValueError):
        rule = about["split"]
        folds = make_folds(data, rule["method"], about["folds"], rule["ratio"], rule["seed"], rule["gap"])
        return [fold.digest() for fold in folds].index(split.digest()) + 1
    return 0


def _tokenizer(config: Settings, folder: Workdir, scratch: Workdir, checks: Checks) -> None:
    """Copy the run's tokenizer if its place is not here, so that it cannot be made again."""
    place = config.text.tokenizer or config.model.checkpoint
    if not place:
        checks.add(True, "the tokenizer was trained again on the sentences of the train part")
    elif config.text.tokenizer and not Path(place).is_dir():
        shutil.copytree(folder.tokenizer, scratch.tokenizer)
        checks.add(False, f"the tokenizer, which is said to be {Path(place).name}")
    else:
        checks.add(True, f"the tokenizer is that of {Path(place).name}")
    if config.model.checkpoint:
        checks.add(False, f"what {Path(config.model.checkpoint).name}, with which training began, was trained on")


def compare_files(theirs: epath.Path, ours: epath.Path) -> int:
    """Return the number of rows of two files of JSON lines; UserError if a line differs."""
    differing, count = [], -1
    with theirs.open(encoding="utf8") as one, ours.open(encoding="utf8") as other:
        lines = itertools.zip_longest((line for line in one if line.strip()), other)
        for count, (line, our_line) in enumerate(lines):
            if line is None or our_line is None:
                place = "which only one of the two has"
            else:
                place = "" if line == our_line else first_difference(json.loads(our_line), json.loads(line))
            if place:
                differing.append(f"line {count + 1}, {place}")
    if differing:
        raise UserError(
            f"{theirs}: {len(differing)} of {count} rows differ from what the checkpoints beside the file give, the "
            f"first is {differing[0]}; another kind of device may change rows at a near tie. Remove the file and "
            f"decode again, or {AS_IT_IS}."
        )
    return count


def first_difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Return the first field in which two JSON objects differ, or ""."""
    for name in {**ours, **theirs}:
        one, other = ours.get(name), theirs.get(name)
        if one != other and name in COMPUTED:
            a, b = np.asarray(one, float), np.asarray(other, float)
            if a.shape == b.shape and np.allclose(a, b, TOLERANCE, TOLERANCE):
                continue
        if one != other and name not in RANKS:
            return name
    return ""


def _check_losses(study: Study, checks: Checks) -> None:
    """Compare losses of the checkpoints on all parts with each other and the log; dev must be the log's lowest."""
    log, below, above, apart = rows_of(study.workdir.metrics), [], [], []
    for arm, losses in _losses(study).items():
        steps, dev = curve(log, f"dev_loss/{arm}")
        known = [value if isinstance(value, float) and math.isfinite(value) else math.inf for value in dev]
        best = int(np.argmin(known or [math.inf]))
        if not known or math.isinf(known[best]):
            raise UserError(
                f"{study.workdir.metrics}: has no finite dev_loss of {arm}, which chose its checkpoint; {AS_IT_IS}."
            )
        if not abs(losses["dev"] - dev[best]) <= LOSS_TOLERANCE * abs(dev[best]):  # also where it is not a number
            raise UserError(
                f"{study.workdir.metrics}: the lowest dev_loss of {arm} is {dev[best]:.4f}, and its checkpoint gives "
                f"{losses['dev']:.4f} on the dev part; {AS_IT_IS}."
            )
        before, points = steps[best - 1] if best else 0, zip(*curve(log, f"loss/{arm}"), strict=True)
        trained = [value for step, value in points if before < step <= steps[best] and value is not None]
        logged = float(np.mean(trained)) if trained else float("nan")  # since the dev loss before
        below.append(f"{arm}: train {losses['train']:.3f} (log {logged:.3f}), test {losses['test']:.3f}")
        if not losses["train"] <= (1 + ABOVE_LOG) * logged:
            above.append(f"{arm}, {losses['train']:.3f} and not {logged:.3f}")
        if losses["test"] < (1 - ABOVE_LOG) * losses["train"]:
            apart.append(arm)
    checks.add(True, "the loss of each checkpoint on the dev part is the lowest of the log")
    if above:
        checks.add(False, f"the log of the training: the loss on the train part is far above it ({'; '.join(above)})")
    said = f"on which rows the checkpoints were trained; losses of their best parameters: {'; '.join(below)}"
    if apart:
        said += f". On the test part {', '.join(apart)} is far below the train part, as after training on the test part"
    checks.add(False, said)


def _losses(study: Study) -> dict[str, dict[str, float]]:
    """Return each arm's loss by part, of its best parameters under its training condition."""
    losses: dict[str, dict[str, float]] = {str(arm): {} for arm in study.arms}
    for wave in arms_together(study):
        params = trained_params(wave)
        params = params.own if isinstance(params, Divided) else params
        program = make_program(wave.config, wave.model, wave.arms, wave.placement.mesh)
        for part, rows in wave.split.parts.items():
            some = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MOST)).astype(int))]
            values = to_host(DevLoss(wave, program, rows=rows if part == "dev" else some)(params))
            for arm, value in zip(wave.arms, values, strict=True):
                losses[str(arm)][part] = float(value)
    return losses
