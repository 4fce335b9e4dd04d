"""The section `data` of the configuration; the modules that read a source declare its fields."""

import dataclasses
from typing import Annotated

from eeg2text_jax.base import kinds
from eeg2text_jax.data.fmri._scans import FmriSpec
from eeg2text_jax.data.planted import PlantedSpec, SyntheticSpec
from eeg2text_jax.data.raw.find import RawSpec
from eeg2text_jax.data.recordings._zuco import RecordingSpec
from eeg2text_jax.data.rows import Columns


@dataclasses.dataclass(frozen=True)
class TableSettings:
    """The section `data.table`: how tables are read."""

    word_column: Annotated[int, kinds.whole(0, 100_000)]
    feature_columns: Annotated[tuple[int, ...], kinds.many(kinds.whole(0, 100_000), least=0)]
    features_are: Annotated[str, kinds.text()]


@dataclasses.dataclass(frozen=True)
class DataSettings:
    """The section `data`, with a section for each kind of source."""

    source: Annotated[str, kinds.place(empty=False)]
    max_words: Annotated[int, kinds.whole(1, 100_000)]
    standardize: Annotated[bool, kinds.flag()]
    synthetic: SyntheticSpec
    synthetic_fmri: PlantedSpec
    columns: Columns
    table: TableSettings
    recordings: RecordingSpec
    raw: RawSpec
    fmri: FmriSpec
