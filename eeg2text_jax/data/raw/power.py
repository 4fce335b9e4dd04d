"""Compute the band power or amplitude of words from voltages, and warn of implausible channels and units."""

import fractions
from collections.abc import Sequence

import numpy as np
import scipy  # imports `scipy.signal` on first use; to import it here would cost every command 2 s of CPU time

from eeg2text_jax.data.raw.find import RawSpec
from eeg2text_jax.data.raw.sentences import Span
from eeg2text_jax.errors import shortlist

MICROVOLT = 1e-6  # V
LOWEST, HIGHEST = 1e-8, 5e-3  # V, range of plausible standard deviations of EEG; 5e-6 to 1e-4 are typical
# A channel is noisy (constant) if its standard deviation is above (below) the median channel's times this factor.
NOISY, CONSTANT = 20.0, 1e-3


class Flat(ValueError):
    """The logarithm of the power of a constant channel was requested; `args[0]` is the channel's number."""


def band_power(volts: np.ndarray, rate: float, spans: Sequence[Span], spec: RawSpec) -> np.ndarray:
    """Return the mean power or amplitude of each of W spans in each band and channel: float64 `[W, F]`, F band-major.

    The amplitude is the magnitude of the analytic signal (Hilbert transform) of the band-passed voltage, as in ZuCo;
    the power is its square.

    Args:
      volts: `[channels, samples]`, with a margin around the spans, in which the filters settle.
      rate: samples per second.
      spans: start and end in seconds from the first sample of `volts`.
      spec: filters, bands, power or amplitude, and whether to take the logarithm.

    Raises Flat if a channel is constant and `spec.log` is set.
    """
    if spec.resample and spec.resample != rate:
        ratio = fractions.Fraction(spec.resample / rate).limit_denominator(1000)
        volts = scipy.signal.resample_poly(volts, ratio.numerator, ratio.denominator, axis=1)
        rate = rate * float(ratio)
    if spec.log and len(flat := np.flatnonzero(np.ptp(volts, axis=1) == 0)):
        raise Flat(int(flat[0]))
    volts = _filtered(volts, rate, spec)
    places = [_samples(span, rate, volts.shape[1]) for span in spans]
    power = np.empty((len(spans), len(spec.bands), len(volts)))
    for b, band in enumerate(spec.bands):
        narrow = scipy.signal.sosfiltfilt(_butter(band, "bandpass", rate), volts, axis=1)
        analytic = scipy.signal.hilbert(narrow, axis=1)
        moments = np.abs(analytic) if spec.amplitude else analytic.real**2 + analytic.imag**2
        for w, (start, stop) in enumerate(places):
            power[w, b] = moments[:, start:stop].mean(axis=1)
    if spec.log:
        power = np.log10(power / (MICROVOLT if spec.amplitude else MICROVOLT**2))
    return power.reshape(len(spans), -1)


def _filtered(volts: np.ndarray, rate: float, spec: RawSpec) -> np.ndarray:
    """Apply the high-pass, low-pass and notch filters that `spec` sets; the band filters follow."""
    for edge, kind in ((spec.highpass, "highpass"), (spec.lowpass, "lowpass")):
        if edge:
            volts = scipy.signal.sosfiltfilt(_butter(edge, kind, rate), volts, axis=1)
    if spec.notch:
        volts = scipy.signal.filtfilt(*scipy.signal.iirnotch(spec.notch, 30.0, fs=rate), volts, axis=1)
    return volts


def _butter(edges: float | tuple[float, float], kind: str, rate: float) -> np.ndarray:
    """Design a Butterworth filter of order 4; applied forwards and backwards it has no delay and twice the order."""
    return scipy.signal.butter(4, edges, kind, fs=rate, output="sos")


def _samples(span: Span, rate: float, n: int) -> tuple[int, int]:
    """Convert a span in seconds to start and end (exclusive) in samples, clipped to `n`, at least one sample long."""
    start = min(round(span[0] * rate), n - 1)
    return start, max(min(round(span[1] * rate), n), start + 1)


class Levels:
    """Standard deviation of each channel, to warn of implausible ones; add voltages that are not yet re-referenced."""

    def __init__(self, channels: Sequence[str]):
        self._channels = channels
        self._found: list[np.ndarray] = []

    def add(self, volts: np.ndarray) -> None:
        """Add the voltages `[channels, samples]` of a sentence."""
        self._found.append(volts.std(axis=1))

    def notes(self) -> list[str]:
        """Return notes on constant or noisy channels, and on an implausible unit of voltage."""
        if not self._found:
            return []
        sizes = np.median(self._found, axis=0)
        usual = float(np.median(sizes))
        found = []
        if constant := self._some(sizes <= CONSTANT * usual):
            found.append(f"channels are constant, or nearly so, as recorded: {constant}; leave them out with "
                         "data.raw.exclude if they are dead.")  # fmt: skip
        if noisy := self._some((sizes > NOISY * usual) & (usual > 0)):
            found.append(f"channels vary more than {NOISY:g} times as much as the others: {noisy}; leave them out with "
                         "data.raw.exclude if they were loose: the average reference spreads noise.")  # fmt: skip
        if usual and not LOWEST < usual < HIGHEST:
            found.append(f"the median channel has a standard deviation of about {usual:.0e} V; EEG has about 1e-05 V: "
                         "is the unit right? MNE expects volts; no verdict depends on it.")  # fmt: skip
        return found

    def _some(self, which: np.ndarray) -> str:
        return shortlist(self._channels[i] for i in np.flatnonzero(which).tolist())
