"""Train, decode and judge EEG-to-text models in JAX."""

__version__ = "0.1.0"
