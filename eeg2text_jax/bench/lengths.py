"""How long sentences are that people read in ZuCo: what benchmarks draw their batches from."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from eeg2text_jax.errors import UserError

LONGEST = 56  # words and tokens of the authors' padded batches; longer sentences are cut

# Fitted to the 1,107 sentences of ZuCo 1.0 (SR, NR, TSR): words are gamma distributed with mean 19.8, and PEGASUS's
# tokenizer makes 1.22 tokens of a word and 1.48 more, give or take 3.0; T5's makes 1.43.
WORDS_SHAPE, WORDS_SCALE = 4.15, 4.78
TOKENS_PER_WORD, MORE_TOKENS, TOKENS_SPREAD = 1.22, 1.48, 3.0


class Lengths(NamedTuple):
    """Of every sentence."""

    words: np.ndarray  # int64 [N], 1 to 56
    tokens: np.ndarray  # int64 [N], the end token among them, 2 to 56


def sentence_lengths(count: int, path: str = "", seed: int = 0) -> Lengths:
    """Lengths of `count` sentences, drawn from the fit, or from a text file with one sentence a line.

    Raises:
      UserError: the file cannot be read or has no words.
    """
    rng = np.random.default_rng(seed)
    words = rng.choice(_words_of(path), count) if path else rng.gamma(WORDS_SHAPE, WORDS_SCALE, count).round()
    tokens = TOKENS_PER_WORD * words + MORE_TOKENS + rng.normal(0, TOKENS_SPREAD, count)
    return Lengths(words.clip(1, LONGEST).astype(int), tokens.round().clip(2, LONGEST).astype(int))


def _words_of(path: str) -> np.ndarray:
    try:
        lines = Path(path).read_text(encoding="utf8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as text ({error}); expected one sentence a line.") from error
    words = np.array([len(line.split()) for line in lines if line.split()])
    if not words.size:
        raise UserError(f"{path}: no sentence in it; expected one a line.")
    return words
