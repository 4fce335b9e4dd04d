"""The settings for raw recordings, and the description of the features."""

import dataclasses
from collections.abc import Sequence

from eeg2text_jax.errors import UserError

Band = tuple[float, float]  # Hz

VOLTS = {"V": 1.0, "mV": 1e-3, "uV": 1e-6, "nV": 1e-9}


@dataclasses.dataclass(frozen=True)
class RawSpec:
    """The fields of `config.data.raw`, documented in `configs/default.py`."""

    begin: str
    skip: tuple[str, ...]
    end: str
    text: str
    texts: str
    word: str
    names: str
    task: str
    channels: tuple[str, ...]
    exclude: tuple[str, ...]
    montage: str
    units: str
    reference: str
    highpass: float
    lowpass: float
    notch: float
    resample: float
    bands: tuple[Band, ...]
    amplitude: bool
    log: bool
    window: float
    step: float
    margin: float
    strict: bool

    def __post_init__(self) -> None:
        object.__setattr__(self, "bands", tuple((float(low), float(high)) for low, high in self.bands))
        for name in ("channels", "exclude", "skip"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @property
    def positions(self) -> str:
        """Description of the EEG positions."""
        return f"events {self.word!r}" if self.word else f"windows of {self.window:g} s every {self.step:g} s"

    def features_are(self, channels: Sequence[str]) -> str:
        """Return the meaning of the F columns of a sample."""
        bands = " ".join(f"{low:g}-{high:g}" for low, high in self.bands)
        kind, square = ("amplitude", "") if self.amplitude else ("power", "^2")
        unit = f"log10 of mean band {kind} in uV{square}" if self.log else f"mean band {kind} in V{square}"
        named = " ".join(channels)
        return (
            f"{unit} of {self.positions}, {len(self.bands)} bands x {len(channels)} channels, band-major; bands in Hz: "
            f"{bands}; channels: {named}"
        )

    def check_rate(self, rate: float, what: str) -> None:
        """Raise UserError if a band or filter exceeds half of the sampling rate."""
        rate = min(rate, self.resample or rate)
        highest = max([high for _, high in self.bands] + [self.highpass, self.lowpass, self.notch])
        if highest >= rate / 2:
            raise UserError(
                f"{what}: has {rate:g} samples a second, and a band or filter at {highest:g} Hz needs more than "
                f"{2 * highest:g}; leave that band out of data.raw.bands, or resample less."
            )
