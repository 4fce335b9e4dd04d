"""Readers of predictions files: our JSON lines, and layouts that published repositories write."""

from eeg2text_jax.metrics.readers.read import FORMATS, describe, read_any

__all__ = ["FORMATS", "describe", "read_any"]
