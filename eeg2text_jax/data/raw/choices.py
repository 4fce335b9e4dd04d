"""The settings for raw recordings, and the description of the features."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated

from eeg2text_jax import kinds
from eeg2text_jax.errors import UserError

Band = tuple[float, float]  # Hz

VOLTS = {"V": 1.0, "mV": 1e-3, "uV": 1e-6, "nV": 1e-9}


@dataclasses.dataclass(frozen=True)
class RawSpec:
    """The fields of `config.data.raw`, documented in `configs/default.py`."""

    begin: Annotated[str, kinds.text()]
    skip: Annotated[tuple[str, ...], kinds.many(kinds.text(empty=False), least=0)]
    end: Annotated[str, kinds.text()]
    text: Annotated[str, kinds.text(empty=False)]
    texts: Annotated[str, kinds.place()]
    word: Annotated[str, kinds.text()]
    names: Annotated[str, kinds.text()]
    task: Annotated[str, kinds.text()]
    channels: Annotated[tuple[str, ...], kinds.many(kinds.text(empty=False), least=0)]
    exclude: Annotated[tuple[str, ...], kinds.many(kinds.text(empty=False), least=0)]
    montage: Annotated[str, kinds.text()]
    units: Annotated[str, kinds.one_of("", *VOLTS)]
    reference: Annotated[str, kinds.text()]
    highpass: Annotated[float, kinds.number(0, 100_000)]
    lowpass: Annotated[float, kinds.number(0, 100_000)]
    notch: Annotated[float, kinds.number(0, 100_000)]
    resample: Annotated[float, kinds.number(0, 100_000)]
    bands: Annotated[tuple[Band, ...], kinds.bands()]
    amplitude: Annotated[bool, kinds.flag()]
    log: Annotated[bool, kinds.flag()]
    window: Annotated[float, kinds.number(0, 1000, above=True)]
    step: Annotated[float, kinds.number(0, 1000, above=True)]
    margin: Annotated[float, kinds.number(0, 1000)]
    strict: Annotated[bool, kinds.flag()]

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
