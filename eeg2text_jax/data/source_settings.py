"""The section `data` of the configuration. The fields of each source are declared in the module that reads it."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from eeg2text_jax.base import kinds
from eeg2text_jax.base.errors import UserError, did_you_mean
from eeg2text_jax.data.fmri._scans import FmriSpec
from eeg2text_jax.data.planted import PlantedSpec, SyntheticSpec
from eeg2text_jax.data.raw.find import RawSpec
from eeg2text_jax.data.recordings._zuco import RecordingSpec
from eeg2text_jax.data.rows import Columns

Spec = TypeVar("Spec")


@dataclasses.dataclass(frozen=True)
class TableSettings:
    """Settings for reading a table: the section `data.table` of the configuration."""

    word_column: Annotated[int, kinds.whole(0, 100_000)]
    feature_columns: Annotated[tuple[int, ...], kinds.many(kinds.whole(0, 100_000), least=0)]
    features_are: Annotated[str, kinds.text()]


@dataclasses.dataclass(frozen=True)
class DataSettings:
    """The section `data` of the configuration; `source_settings` converts the mapping of the chosen source."""

    source: Annotated[str, kinds.place(empty=False)]
    max_words: Annotated[int, kinds.whole(1, 100_000)]
    standardize: Annotated[bool, kinds.flag()]
    synthetic: Annotated[Mapping[str, Any], SyntheticSpec]
    synthetic_fmri: Annotated[Mapping[str, Any], PlantedSpec]
    columns: Annotated[Mapping[str, Any], Columns]
    table: TableSettings
    recordings: Annotated[Mapping[str, Any], RecordingSpec]
    raw: Annotated[Mapping[str, Any], RawSpec]
    fmri: Annotated[Mapping[str, Any], FmriSpec]


def source_settings(spec: type[Spec], values: Mapping[str, Any], section: str) -> Spec:
    """Check `values`, the section of one kind of source, and return them as the dataclass `spec`.

    Raises:
      UserError: a field is unknown, missing or out of its range; the message names it as `section.field`.
    """
    ranges = kinds.ranges_of(spec)
    for name in {**ranges, **values}:
        if name not in ranges:
            raise UserError(f"{section}.{name}: there is no such field; {did_you_mean(name, ranges)}")
        if name not in values:
            raise UserError(f"{section}.{name} is missing; expected {ranges[name].expected}.")
        if not ranges[name].holds(values[name]):
            raise UserError(f"{section}.{name} is {values[name]!r}; expected {ranges[name].expected}.")
    return kinds.read_section(spec, values)
