"""Functions for notebooks: train and audit in one call, and read a run's results as Python objects."""

import contextlib
import dataclasses
import functools
import html
import io
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.stores.buckets import at_hand, is_address
from eeg2text_jax.data.datafile import DataFile, read_datafile
from eeg2text_jax.data.splits.certificate import certify_data
from eeg2text_jax.data.splits.split import Split, write_split_file
from eeg2text_jax.instrument.auditing.report import effect_figure, markdown_html
from eeg2text_jax.instrument.auditing.result import AuditResult
from eeg2text_jax.instrument.metrics.tables import NARROW_COLUMNS, score_table, table_markdown
from eeg2text_jax.instrument.predictions.file import Prediction, read_predictions
from eeg2text_jax.instrument.predictions.rankings import read_rankings
from eeg2text_jax.instrument.workdir import verdict_in
from eeg2text_jax.models.pretrained.folder import FEEDING
from eeg2text_jax.runs import pipeline
from eeg2text_jax.runs._attributions import map_figure, read_map
from eeg2text_jax.runs.exported import Exported, arm_number, exported, finished_study, load_export, write_export
from eeg2text_jax.runs.python_data import Recordings, changed, prepare
from eeg2text_jax.training.configuration import load_config
from eeg2text_jax.training.loop import trained_arm
from eeg2text_jax.training.metrics_log import loss_figure
from eeg2text_jax.training.sections import checked_settings
from eeg2text_jax.training.study import Study


class Svg(str):
    """An SVG figure, which a notebook draws."""

    def __repr__(self) -> str:
        return f"Svg({len(self)} characters)"

    def _repr_svg_(self) -> str:
        return str(self)


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A finished run, made by `fit` and `load`: `study` has its inputs, the folder `workdir` its files."""

    study: Study
    _exports: dict[int, Exported] = dataclasses.field(default_factory=dict)

    @property
    def workdir(self) -> Path:
        return Path(self.study.workdir.root)

    @property
    def data(self) -> DataFile:
        return self.study.data

    @property
    def split(self) -> dict[str, np.ndarray]:
        """Part (train, dev or test) -> rows of the data file."""
        return dict(self.study.split.parts)

    @property
    def arms(self) -> list[str]:
        """The trained arms, `condition/seed`."""
        return [str(arm) for arm in self.study.arms]

    @functools.cached_property
    def predictions(self) -> list[Prediction]:
        """The predictions of the test part; rankings if the run is contrastive."""
        if self.study.config.objective == "contrastive":
            return list(read_rankings(self.study.workdir.rankings).rows)
        return list(read_predictions(self.study.workdir.predictions).predictions)

    @functools.cached_property
    def scores(self) -> dict[str, Any]:
        """The content of `results.json`; `cells` has the scores of every arm, condition and mode."""
        return json.loads(self.study.workdir.results.read_text())

    @functools.cached_property
    def verdict(self) -> AuditResult:
        """The audit of the arms trained on EEG; UserError if no arm was trained and tested with EEG."""
        if (answer := pipeline.verdict_of(self.study)) is None:
            raise UserError(pipeline.NO_AUDIT)
        return answer

    def table(self) -> str:
        """Return the scores as a Markdown table in the layout of the paper."""
        return table_markdown(score_table(self.scores, self.study.config.model.backbone, NARROW_COLUMNS))

    def decode(
        self, features: Sequence[np.ndarray] | np.ndarray, mask: np.ndarray | None = None, *, arm: str = ""
    ) -> list[str]:
        """Decode raw features to text, free-running, with the run's settings; see `runs.exported`.

        Args:
          features: an array `[words, F]` for each recording, or `[N, W, F]` with `mask`.
          mask: `[N, W]` bool, False at padding.
          arm: one of `arms`; empty: the first that was trained on EEG.

        Raises:
          UserError: the arm does not exist; features have another width, kind or shape; `mask` is missing or wrong.
        """
        number = arm_number(self.study.arms, arm)
        if number not in self._exports:
            self._exports[number] = exported(self.study, trained_arm(self.study, number))
        return self._exports[number].decode(features, mask)

    def export(self, out: str | os.PathLike[str], *, arm: str = "") -> Path:
        """Write an arm to a folder that `load` and transformers read; return its path."""
        number = arm_number(self.study.arms, arm)
        write_export(self.study, self.study.arms[number], trained_arm(self.study, number), os.fspath(out))
        return Path(out)

    def plot_effects(self) -> Svg:
        """Plot content (score above chance) of EEG minus that of each control; UserError as of `verdict`."""
        return Svg(effect_figure(self.verdict))

    def plot_losses(self) -> Figure:
        """Plot the losses by step."""
        return loss_figure(self.study.workdir.metrics)

    def plot_channels(self) -> Figure:
        """Plot each channel's influence on each arm's text; UserError without electrode positions."""
        if not (path := self.study.workdir.channels).exists():
            raise UserError(
                f"{path}: there is no such file, because the electrode positions are unknown (data.raw.montage)."
            )
        return map_figure(*read_map(path))

    def _repr_html_(self) -> str:
        return f"<p><code>{html.escape(repr(self))}</code></p>{markdown_html(self.table())}"

    def __repr__(self) -> str:
        parts = ", ".join(f"{len(rows)} {name}" for name, rows in self.study.split.parts.items())
        verdict = verdict_in(self.workdir).replace("**", "")
        return f"Run({parts}; arms {', '.join(self.arms)}; {self.workdir}{f'; {verdict}' if verdict else ''})"


def fit(
    data: str | os.PathLike[str] | DataFile | Recordings,
    config: str | ConfigDict = "own",
    *,
    workdir: str | os.PathLike[str] | None = None,
    split: Split | str | os.PathLike[str] | None = None,
    quiet: bool = False,
    **changes: Any,
) -> Run:
    """Do a whole run, as `eeg2text run`: train all arms, decode, score and audit.

    Args:
      data: path of a data file, or what else `prepare` reads; objects are written to `WORKDIR_data.h5`.
      config: a configuration, the path of one, or the name of one in the package.
      workdir: the folder of the run; the same call resumes an interrupted one. None: a temporary folder, which is
        removed when the returned `Run` is garbage-collected.
      split: from `data.splits.methods.make_split`, or the path of a split file; None: as the configuration says.
      quiet: print no progress and no tables.
      **changes: fields of the configuration, `__` for dots: `train__steps=100`, `grid__seeds=(0, 1, 2)`.

    Raises:
      UserError: a field, the data or the workdir is not usable.

    Examples:
      Train and audit on 64 sentences whose features are noise:

      >>> import numpy as np
      >>> from eeg2text_jax import data, fit
      >>> rng = np.random.default_rng(0)
      >>> pairs = [(a, b) for a in ("dog", "cat", "cow", "hen", "fox", "owl", "elk", "bee") for b in "abcdefgh"]
      >>> rows = [{"features": rng.normal(size=(4, 6)), "sentence": f"the {a} saw {b}"} for a, b in pairs]
      >>> small = {"batch__buckets": ((12, 12),), "decode__num_beams": 1, "train__steps": 4}
      >>> run = fit(data.write("own.h5", rows), "own", workdir="run", **small, quiet=True)
      >>> len(run.decode([rng.normal(size=(4, 6)), rng.normal(size=(9, 6))]))
      2
      >>> run.verdict.verdict.value == "uses EEG"
      False
    """
    settings = changed(load_config(config) if isinstance(config, str) else config, changes)
    folder = "" if workdir is not None else tempfile.mkdtemp(prefix="eeg2text_")
    root = f"{folder}/run" if folder else str(workdir)
    if not isinstance(data, str | os.PathLike | DataFile):
        data = prepare(data, f"{root}_data.h5", settings)
    data_fields = {"data.source": str(data.path if isinstance(data, DataFile) else data)}
    if isinstance(split, Split):
        if is_address(root):
            raise UserError(
                f"{root}: for a run in a bucket, set split.method, or the path of a split file in split.path."
            )
        certificate = certify_data(data if isinstance(data, DataFile) else read_datafile(data), split)
        write_split_file(split := Path(f"{root}_split.json"), certificate)
    if split is not None:
        data_fields |= {"split.method": "file", "split.path": str(split)}
    with contextlib.redirect_stdout(io.StringIO()) if quiet else contextlib.nullcontext():
        pipeline.run(checked_settings(changed(settings, data_fields)), root)
        run = Run(finished_study(root))
    if folder:
        weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True)
    return run


def load(place: str | os.PathLike[str]) -> Run | Exported:
    """Load a finished run from its workdir, or an exported model from its folder or the Hub; both have `decode`.

    Raises:
      UserError: neither exists there, or a file is missing or was changed.

    Examples:
      >>> from eeg2text_jax import load
      >>> run = load("run")
      >>> run.arms
      ['eeg/0', 'noise/0']
      >>> sorted(run.split)
      ['dev', 'test', 'train']
    """
    path = Path(place := at_hand(place))
    if (path / FEEDING).exists() or not path.exists():
        return load_export(os.fspath(place))
    with contextlib.redirect_stdout(io.StringIO()):
        return Run(finished_study(str(place)))
