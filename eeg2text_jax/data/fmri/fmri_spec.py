"""Settings for turning scans into samples."""

import dataclasses

from eeg2text_jax.data.volume_file import DTYPES
from eeg2text_jax.errors import UserError

RUNS = ("first", "all")


@dataclasses.dataclass(frozen=True)
class FmriSpec:
    """The fields of `config.data.fmri`; `configs/default.py` says what each means."""

    transcripts: str = ""
    tasks: tuple[str, ...] = ()
    grid: tuple[int, int, int] = (64, 64, 27)
    exclude: str = "code/scan_exclude.json"
    runs: str = "first"
    window: int = 10
    stride: int = 1
    lag_tr: int = 0
    detrend: int = 0
    clip: float = 5.0
    mask: float = 0.0
    dtype: str = "float16"
    same_text: tuple[tuple[str, ...], ...] = ()
    strict: bool = False

    def __post_init__(self) -> None:
        for name in ("tasks", "grid"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "same_text", tuple(map(tuple, self.same_text)))
        if self.runs not in RUNS or self.dtype not in DTYPES:
            raise UserError(
                f"data.fmri.runs is {self.runs!r} and data.fmri.dtype {self.dtype!r}; expected {' or '.join(RUNS)}, "
                f"and {' or '.join(DTYPES)}."
            )

    def group_of(self, stimulus: str) -> str:
        """Return the text group of a stimulus: the first name of its `same_text` group, else its own name."""
        return next((names[0] for names in self.same_text if stimulus in names), stimulus)

    def features_are(self) -> str:
        """The meaning of the voxels' values."""
        trend = f"less a polynomial of degree {self.detrend}" if self.detrend else "less the mean"
        masked = f", 0 where the mean is below {self.mask:g} of its 98th percentile" if self.mask else ""
        return (
            f"{' x '.join(map(str, self.grid))} voxels, each over its run {trend} and over its standard deviation, cut "
            f"at +-{self.clip:g}{masked}; frame t + {self.lag_tr} with the words of TR t"
        )
