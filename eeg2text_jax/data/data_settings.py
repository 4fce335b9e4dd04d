"""The section `data` of the configuration; the fields of a source's section are in the class that reads it."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from eeg2text_jax import kinds
from eeg2text_jax.data.fmri.scans import FmriSpec
from eeg2text_jax.data.planted.planted_scans import PlantedSpec
from eeg2text_jax.data.planted.planted_words import SyntheticSpec
from eeg2text_jax.data.raw.choices import RawSpec
from eeg2text_jax.data.recordings.samples import RecordingSpec
from eeg2text_jax.data.rows import Columns


@dataclasses.dataclass(frozen=True)
class TableSettings:
    """Section `data.table`."""

    word_column: Annotated[int, kinds.whole(0, 100_000)]
    feature_columns: Annotated[tuple[int, ...], kinds.many(kinds.whole(0, 100_000), least=0)]
    features_are: Annotated[str, kinds.text()]


@dataclasses.dataclass(frozen=True)
class DataSettings:
    """Section `data`; only the section of the source at hand is checked further, by the class of its fields."""

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
