"""Brain encoders, one module each: what stands between recordings and the language model."""

ENCODERS = ("transformer", "unicorn", "lstm", "none")
