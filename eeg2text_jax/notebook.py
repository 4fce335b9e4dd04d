"""Functions for notebooks: go from a data file to a verdict in a few lines; read a run's results as Python objects.

run = fit("own.h5", "own", train__steps=300)    # prepare, split, train, decode, score, audit
print(run.verdict.sentence)
run.decode([features])                           # raw features [words, F] of any recording -> text
"""

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
from typing import TYPE_CHECKING, Any

import numpy as np
from ml_collections import ConfigDict

from eeg2text_jax import pipeline
from eeg2text_jax.auditing.figures import effect_figure
from eeg2text_jax.auditing.page import markdown_html
from eeg2text_jax.data.datafile import DataFile, read_datafile
from eeg2text_jax.decoding.exported import Exported, load_export
from eeg2text_jax.decoding.topomap import map_figure, read_map
from eeg2text_jax.errors import UserError
from eeg2text_jax.export_run import arm_number, exported, finished_study, write_export
from eeg2text_jax.metrics.render import table_markdown
from eeg2text_jax.metrics.tables import NARROW_COLUMNS, score_table
from eeg2text_jax.predictions.file import Prediction, read_predictions
from eeg2text_jax.predictions.rankings import read_rankings
from eeg2text_jax.pretrained.export_files import FEEDING
from eeg2text_jax.python_data import Recordings, changed, prepare
from eeg2text_jax.rank_run import NO_AUDIT
from eeg2text_jax.splits.certificate import certify_data
from eeg2text_jax.splits.split import Split
from eeg2text_jax.splits.splitfile import write_split_file
from eeg2text_jax.stores.address import is_address
from eeg2text_jax.stores.copying import at_hand
from eeg2text_jax.study.configuration import load_config
from eeg2text_jax.study.ranges import checked_settings
from eeg2text_jax.study.study import Study
from eeg2text_jax.training.metrics_log import loss_figure
from eeg2text_jax.training.waves import trained_arm

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from eeg2text_jax.auditing.result import AuditResult


class Svg(str):
    """A figure as SVG; a notebook draws it."""

    def __repr__(self) -> str:
        return f"Svg({len(self)} characters)"

    def _repr_svg_(self) -> str:
        return str(self)


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A finished run: its data and model, its outputs and its verdict. Returned by `fit` and `load`.

    `study` has the data, the split and the model; `workdir` all files, `report.html` among them.
    """

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
        """Row numbers of the data file by part."""
        return dict(self.study.split.parts)

    @property
    def arms(self) -> list[str]:
        """The names of the trained arms, `condition/seed`."""
        return [str(arm) for arm in self.study.arms]

    @functools.cached_property
    def predictions(self) -> list[Prediction]:
        """All predictions for the test part, of every arm, condition and mode; rankings if contrastive."""
        if self.study.config.objective == "contrastive":
            return list(read_rankings(self.study.workdir.rankings).rows)
        return list(read_predictions(self.study.workdir.predictions).predictions)

    @functools.cached_property
    def scores(self) -> dict[str, Any]:
        """The content of `results.json`: a cell for each arm, condition and mode."""
        return json.loads(self.study.workdir.results.read_text())

    @functools.cached_property
    def verdict(self) -> "AuditResult":
        """The audit of the arms that were trained on EEG: decoding with EEG against every other condition.

        Raises:
          UserError: no arm was trained and tested with EEG.
        """
        found = pipeline.verdict_of(self.study)
        if found is None:
            raise UserError(NO_AUDIT)
        return found

    def table(self) -> str:
        """Return the scores as a Markdown table in the layout of the paper's table."""
        return table_markdown(score_table(self.scores, self.study.config.model.backbone, NARROW_COLUMNS))

    def decode(
        self, features: Sequence[np.ndarray] | np.ndarray, mask: np.ndarray | None = None, *, arm: str = ""
    ) -> list[str]:
        """Decode raw features to text, free-running, with the run's settings; see `decoding.exported.Exported.decode`.

        Args:
          features: one array `[words, F]` for each recording, or `[N, W, F]` with `mask`.
          mask: `[N, W]` bool, True at real words.
          arm: which of `arms`; empty: the first that was trained on EEG.

        Raises:
          UserError: there is no such arm; features of another width, kind or shape; a mask is missing or wrong.
        """
        number = arm_number(self.study.arms, arm)
        if number not in self._exports:
            self._exports[number] = exported(self.study, trained_arm(self.study, number))
        return self._exports[number].decode(features, mask)

    def export(self, out: str | os.PathLike[str], *, arm: str = "") -> Path:
        """Write the same folder as `eeg2text export`; `load` and transformers read it.

        Raises:
          UserError: there is no such arm, or the folder is there already.
        """
        number = arm_number(self.study.arms, arm)
        write_export(self.study, self.study.arms[number], trained_arm(self.study, number), os.fspath(out))
        return Path(out)

    def plot_effects(self) -> "Svg":
        """Plot the difference in content against each control, with its intervals.

        Raises:
          UserError: see `verdict`.
        """
        return Svg(effect_figure(self.verdict))

    def plot_losses(self) -> "Figure":
        """Plot the losses by step; return a matplotlib figure."""
        return loss_figure(self.study.workdir.metrics)

    def plot_channels(self) -> "Figure":
        """Plot scalp maps of the channels that influence the decoded text, one per arm, as in the report; not a test.

        Raises:
          UserError: the electrode positions are unknown.
        """
        if not (path := self.study.workdir.channels).exists():
            raise UserError(
                f"{path}: there is no such file; where the electrodes were is not known (data.raw.montage)."
            )
        return map_figure(*read_map(path))

    def _repr_html_(self) -> str:
        return f"<p><code>{html.escape(repr(self))}</code></p>{markdown_html(self.table())}"

    def __repr__(self) -> str:
        parts = ", ".join(f"{len(rows)} {name}" for name, rows in self.study.split.parts.items())
        return f"Run({parts}; arms {', '.join(self.arms)}; {self.workdir})"


def fit(
    data: "str | os.PathLike[str] | DataFile | Recordings",
    config: str | ConfigDict = "own",
    *,
    workdir: str | os.PathLike[str] | None = None,
    split: Split | str | os.PathLike[str] | None = None,
    quiet: bool = False,
    **changes: Any,
) -> Run:
    """Do a whole run, as `eeg2text run`: train the grid, decode, score and audit.

    Args:
      data: a data file, or anything else that `eeg2text prepare` takes, by its path; or what `prepare` takes of
        Python: `mne.io.Raw`, `mne.Epochs`, a DataFrame. Then the data file is `WORKDIR_data.h5`.
      config: a configuration of one's own, the path of one, or the name of one that travels with the package.
      workdir: where everything goes; the same call goes on where an earlier one ended. None: a folder for the time
        being, which goes with the run.
      split: from `splits.methods.make_split`, or the path of a split file; None: as the configuration says.
      quiet: whether progress and tables are not printed.
      **changes: fields of the configuration, `__` for dots: `train__steps=100`, `grid__seeds=(0, 1, 2)`.

    Raises:
      UserError: a field, the data or the workdir is not usable.

    Examples:
      Sixty-four sentences of noise, and what comes of them:

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
    settings = load_config(config) if isinstance(config, str) else config.copy_and_resolve_references()
    folder = "" if workdir is not None else tempfile.mkdtemp(prefix="eeg2text_")
    root = f"{folder}/run" if folder else str(workdir)
    settings = changed(settings, {name.replace("__", "."): value for name, value in changes.items()})
    if not isinstance(data, str | os.PathLike | DataFile):
        data = prepare(data, f"{root}_data.h5", settings)
    settings = changed(settings, {"data.source": str(data.path if isinstance(data, DataFile) else data)})
    if isinstance(split, Split):
        split = _written(split, data, root)
    if split is not None:
        settings = changed(settings, {"split.method": "file", "split.path": str(split)})
    with contextlib.redirect_stdout(io.StringIO()) if quiet else contextlib.nullcontext():
        pipeline.run(checked_settings(settings), root)
        run = Run(finished_study(root))
    if folder:
        weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True)
    return run


def load(place: str | os.PathLike[str]) -> Run | Exported:
    """Load a finished run from its workdir, or an exported model from its folder or from the Hub; both can `decode`.

    Raises:
      UserError: there is neither, or something in it is missing or was changed.

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


def _written(split: Split, data: str | os.PathLike[str] | DataFile, root: str) -> str:
    """Write the split to a file beside the workdir; return its path."""
    if is_address(root):
        raise UserError(f"{root}: of a run in a bucket, give the split as a method or as a split file in split.path.")
    if not isinstance(data, DataFile):
        data = read_datafile(data)
    path = Path(f"{root}_split.json")
    write_split_file(path, certify_data(data, split))
    return str(path)
