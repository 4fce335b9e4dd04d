"""Write data files from MNE's Raw and Epochs, pandas DataFrames, and paths."""

import dataclasses
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from eeg2text_jax.base.errors import UserError, did_you_mean
from eeg2text_jax.base.kinds import read_section
from eeg2text_jax.data.clock import CLOCK_COLUMNS
from eeg2text_jax.data.datafile import DataFile, read_datafile
from eeg2text_jax.data.prepare import prepare as prepare_sources
from eeg2text_jax.data.raw.find import SENSORS, RawSpec, select_channels, sensor_types
from eeg2text_jax.data.raw.raw_samples import described, rereference
from eeg2text_jax.data.raw.sentences import Flat, Reading, Short, band_power, level_notes, waves, windows
from eeg2text_jax.data.rows import PLAIN, SUBJECT, Columns, note_unused, write
from eeg2text_jax.data.source import Tally
from eeg2text_jax.data.source_settings import DataSettings
from eeg2text_jax.training.configuration import load_config
from eeg2text_jax.training.sections import RANGES, check_config, fields, refusal

Recordings = Any  # mne.io.Raw or several, mne.Epochs, a DataFrame, a path or several


def prepare(
    data: Recordings, out: str | os.PathLike[str], config: str | ConfigDict = "own", **changes: Any
) -> DataFile:
    """Write recordings to a data file, as `eeg2text prepare`, and open it.

    Args:
      data: `mne.io.Raw` with annotations (or a list), with the features of `config.data.raw`; `mne.Epochs`, one
        sentence each, with metadata columns `sentence` (or `text`) and perhaps those of `write` for subject, task,
        number and time; a DataFrame with columns `features` (`[W, F]` or `[F]`) and `sentence`; or paths that
        `eeg2text prepare` reads.
      out: path of the data file, `.h5`.
      config: a configuration, its path or its name; only its section `data` is used.
      **changes: fields of the configuration, `__` for dots: `data__raw__word="word"`.

    Raises:
      UserError: a field or the data is not usable.

    Examples:
      >>> import pandas
      >>> from eeg2text_jax import prepare
      >>> features = [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]]
      >>> frame = pandas.DataFrame({"features": features, "sentence": ["a dog", "cats"]})
      >>> prepare(frame, "frame.h5").sentence.tolist()
      ['a dog', 'cats']
    """
    settings = changed(load_config(config) if isinstance(config, str) else config, changes)
    check_config(settings, ["data"])
    section = read_section(DataSettings, settings.data)
    several = list(data) if isinstance(data, list | tuple) else [data]
    spec, columns, tally = section.raw, section.columns, Tally()
    if all(isinstance(one, str | os.PathLike) for one in several):
        tally = prepare_sources(section, Path(out), [os.fspath(one) for one in several])
    elif hasattr(data, "itertuples"):
        note_unused(data.columns, columns, "data", tally)
        write(out, data, columns=columns, tally=tally)
    elif not isinstance(data, list | tuple) and hasattr(data, "metadata") and hasattr(data, "ch_names"):
        types = dict(zip(data.ch_names, data.get_channel_types(), strict=True))
        names = select_channels(types, spec, "", "the epochs")
        kinds = sensor_types(types, names)
        rows = epoch_rows(data, names, kinds, spec, columns, tally)
        rate = spec.resample or float(data.info["sfreq"])
        features_are, about = described(data.info, names, kinds, rate, spec)
        if not spec.is_waves and set(kinds) == {"eeg"}:  # as in files of earlier versions
            del about["channels"]
        if data.tmin < 0:
            tally.notes.append(
                f"epochs begin {-data.tmin:g} s before their event, and this part counts as well; "
                "epochs.crop(tmin=0) leaves it out."
            )
        if data.metadata is None or columns.subject not in data.metadata.columns:
            tally.notes.append(
                f"the metadata have no column {columns.subject!r}: all epochs are of one subject, {SUBJECT!r}."
            )
        write(out, rows, features_are=features_are, provenance={"held": "mne.Epochs", **about}, tally=tally)
    elif all(hasattr(one, "ch_names") and not hasattr(one, "metadata") for one in several):
        tally = prepare_raws(several, Path(out), section)
    else:
        raise UserError(
            f"data is {kind_of(data)}; expected mne.io.Raw (or a list of them), mne.Epochs (of several subjects: "
            "concatenated, with a column `subject` in their metadata), a DataFrame or a path."
        )
    print("\n".join([*tally.notes, tally.report()]), file=sys.stderr)
    return read_datafile(out)


def kind_of(data: Any) -> str:
    """Return the type of an object and its elements: "a list of str"."""
    inside = list(data.values()) if isinstance(data, dict) else list(data) if isinstance(data, list | tuple) else []
    kinds = ", ".join(dict.fromkeys(type(one).__name__ for one in inside))
    return f"a {type(data).__name__}" + (f" of {kinds}" if kinds else "")


def prepare_raws(raws: Sequence[Any], out: Path, section: DataSettings) -> Tally:
    """Write MNE recordings to a data file, through temporary FIF files."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, raw in enumerate(raws, 1):
            subject = (raw.info["subject_info"] or {}).get("his_id") or f"S{number}"
            path = Path(folder) / str(number) / f"{subject}_raw.fif"
            path.parent.mkdir()
            raw.save(path, verbose="error")
            paths.append(str(path))
        has_runs = len({Path(path).name for path in paths}) < len(paths)  # several recordings of one subject
        names = section.raw.names or rf"{'(?P<run>[^/]+)/' if has_runs else ''}(?P<subject>[^/]+)_raw\.fif"
        section = dataclasses.replace(section, raw=dataclasses.replace(section.raw, names=names))
        try:
            tally = prepare_sources(section, out, paths)
        except UserError as error:
            raise type(error)(_hide_paths(str(error), folder)) from error
        tally.notes = [_hide_paths(note, folder) for note in tally.notes]
        return tally


def _hide_paths(said: str, folder: str) -> str:
    return re.sub(rf"{re.escape(folder)}/(\d+)/[^:;,]*?_raw\.fif", r"recording \1", said)


def epoch_rows(
    epochs: Any, names: Sequence[str], kinds: Sequence[str], spec: RawSpec, columns: Columns, tally: Tally
) -> Iterator[dict[str, Any]]:
    """Yield a row for each epoch: features `[W, F]`, sentence, metadata; UserError if not usable."""
    column_names = [] if epochs.metadata is None else list(epochs.metadata.columns)
    text = next((name for name in (columns.sentence, spec.text) if name in column_names), None)
    if text is None:
        raise UserError(
            f"the metadata of the epochs have the columns {', '.join(map(str, column_names)) or '(none)'}; expected "
            f"{columns.sentence!r} with the text of each epoch; name another column in data.columns.sentence."
        )
    rate = float(epochs.info["sfreq"])
    spec.check_rate(rate, "the epochs")
    levels = []
    factor = np.array([[SENSORS[kind].factor] for kind in kinds])
    for values, (_, about) in zip(epochs.get_data(picks=list(names)), epochs.metadata.iterrows(), strict=True):
        volts = np.asarray(values) * factor
        levels.append(volts.std(axis=1))
        volts, made, _ = rereference(volts, names, kinds, spec, "the epochs")
        spans = windows(Reading("", 0.0, volts.shape[1] / rate), spec.window, spec.step)
        named = {field: getattr(columns, field) for field in (*PLAIN, *CLOCK_COLUMNS)}
        row = {ours: about[theirs] for ours, theirs in named.items() if theirs in column_names}
        try:
            if spec.is_waves:
                features = waves(volts, rate, (0.0, volts.shape[1] / rate), spec)
            else:
                features = band_power(volts, rate, spans, spec)
        except Flat as flat:
            raise UserError(
                f"an epoch has a constant channel, {made[flat.args[0]]}, whose power has no logarithm; leave it out "
                "with data.raw.exclude."
            ) from flat
        except Short as short:
            raise UserError(
                f"the epochs have {volts.shape[1]} samples at {rate:g} a second, too few for the filters; expected "
                "longer epochs, or a higher data.raw.resample."
            ) from short
        yield {**row, "features": features, "sentence": about[text]}
    tally.notes += level_notes(levels, names, kinds)


def changed(config: ConfigDict, changes: dict[str, Any]) -> ConfigDict:
    """Return a copy with new values of fields, named with `.` or `__`; UserError if they do not fit."""
    config = config.copy_and_resolve_references()
    values = dict(fields(config))
    for name, value in changes.items():
        name = name.replace("__", ".")
        if name not in values:
            raise UserError(f"{name}: there is no such field of a configuration; {did_you_mean(name, values)}")
        if name in RANGES and not RANGES[name].holds(value):
            raise refusal(name, value)
        with config.unlocked(), config.ignore_type():
            config.update_from_flattened_dict({name: value})
    return config.lock()
