"""Voltages of a sentence -> power or amplitude of its words in frequency bands."""

import fractions
from collections.abc import Sequence

import numpy as np
import scipy.signal

from eeg2text_jax.data.raw.choices import RawSpec
from eeg2text_jax.data.raw.sentences import Span

ORDER = 4  # of every Butterworth filter, which runs forth and back: without delay, twice the attenuation
NOTCH_Q = 30.0
MICROVOLT = 1e-6  # V


class Flat(ValueError):
    """A channel is constant, so that its power has no logarithm; `args[0]` is its number."""


def band_power(volts: np.ndarray, rate: float, spans: Sequence[Span], spec: RawSpec) -> np.ndarray:
    """Return the mean power or amplitude of each span in each band and channel: `[W, F]` float64, F band-major.

    The amplitude at a moment is the analytic signal's magnitude (Hilbert transform) of the band-passed voltage, as in
    ZuCo; the power is its square.

    Args:
      volts: `[channels, samples]`, with a margin around the spans in which filters settle.
      rate: samples a second.
      spans: begin and end in seconds from the first sample of `volts`.
      spec: filters, bands, power or amplitude, and whether the logarithm is taken.

    Raises:
      Flat: the logarithm of no power was to be taken.
    """
    if spec.resample and spec.resample != rate:
        ratio = fractions.Fraction(spec.resample / rate).limit_denominator(1000)
        volts = scipy.signal.resample_poly(volts, ratio.numerator, ratio.denominator, axis=1)
        rate = rate * float(ratio)
    flat = np.flatnonzero(np.ptp(volts, axis=1) == 0)
    if len(flat) and spec.log:
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
    """The filters that come before the bands, if any."""
    for edge, kind in ((spec.highpass, "highpass"), (spec.lowpass, "lowpass")):
        if edge:
            volts = scipy.signal.sosfiltfilt(_butter(edge, kind, rate), volts, axis=1)
    if spec.notch:
        numerator, denominator = scipy.signal.iirnotch(spec.notch, NOTCH_Q, fs=rate)
        volts = scipy.signal.filtfilt(numerator, denominator, volts, axis=1)
    return volts


def _butter(edges: float | tuple[float, float], kind: str, rate: float) -> np.ndarray:
    return scipy.signal.butter(ORDER, edges, kind, fs=rate, output="sos")


def _samples(span: Span, rate: float, n: int) -> tuple[int, int]:
    """First sample and the one after the last; at least one."""
    start = min(round(span[0] * rate), n - 1)
    return start, max(min(round(span[1] * rate), n), start + 1)
