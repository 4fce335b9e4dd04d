"""Brain encoders: the networks that turn recordings into embeddings for the language model."""

ENCODERS = ("transformer", "unicorn", "lstm", "none")
