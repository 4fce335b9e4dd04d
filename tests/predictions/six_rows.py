"""Six references, each with an output, and what is read of a file that holds them."""

from eeg2text_jax.instrument.predictions.read import read_any

REFERENCES = [f"the {animal} sat on the {place}" for animal in ("cat", "dog", "emu") for place in ("mat", "hat")]
OUTPUTS = [f"He was {n} times the mayor" for n in range(6)]
EQUAL = list(zip(REFERENCES, OUTPUTS, strict=True))


def texts(path, **options) -> list[tuple[str, str]]:
    return [(p.reference, p.prediction) for p in read_any(path, **options).predictions]
