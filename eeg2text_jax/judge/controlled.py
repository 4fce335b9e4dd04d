"""Controlled edits: pairs labelled by construction, for use without human ratings.

An edit of severity 0 or 1 keeps the meaning; one of severity 2 breaks it. The class of a pair is drawn first, then its
edits: 1 to 4 harmless ones, or a breaking one and up to 3 harmless ones, so that the word error rates of both classes
overlap. Labels come from a rule, not a rater; figures from such pairs are labelled "controlled edits".
"""

import dataclasses
import random
from collections.abc import Sequence

from eeg2text_jax.judge.edits import BREAKING, HARMLESS, MILD, Corpus
from eeg2text_jax.judge.pairs import Pair, is_exact, normalize


def edit_sentence(text: str, harmless: int, breaking: bool, rng: random.Random, corpus: Corpus) -> Pair | None:
    """Pair a sentence with its edited copy: `breaking` edits first, then `harmless` edits of different kinds.

    Returns None if the sentence does not allow these edits.
    """
    words, kind = text.split(), ""
    if breaking:
        for name in rng.sample(list(BREAKING), len(BREAKING)):
            if (changed := BREAKING[name](words, rng, corpus)) is not None:
                words, kind = changed, name
                break
        else:
            return None
    done: list[str] = []
    for name in rng.sample(list(HARMLESS), len(HARMLESS)):
        if len(done) == harmless:
            break
        if (changed := HARMLESS[name](words, rng, corpus)) is not None:
            words = changed
            done.append(name)
    hypothesis = " ".join(words)
    if is_exact(text, hypothesis) or not normalize(hypothesis) or not (kind or done):
        return None
    rated = "2" if breaking else "1" if set(done) & set(MILD) else "0"
    return Pair(text, hypothesis, not breaking, rated, kind=kind)


def make_pairs(sentences: Sequence[str], *, per_sentence: int, preserved: float, seed: int) -> list[Pair]:
    """Make pairs of every usable sentence, in order; pairs that cannot be made are skipped."""
    rng, corpus = random.Random(seed), Corpus.of(sentences)
    found = []
    for text in corpus.sentences:
        for _ in range(per_sentence):
            breaking = rng.random() >= preserved
            harmless = rng.randint(0, 3) if breaking else rng.randint(1, 4)
            pair = next(filter(None, (edit_sentence(text, harmless, breaking, rng, corpus) for _ in range(5))), None)
            if pair is not None:
                found.append(pair)
    return found


# Synthetic speakers: share of utterances with an error, harmless edits per error, share of errors that break the
# meaning. Some speakers have many harmless errors, some have few severe ones.
SPEAKERS = (
    (0.9, 2, 0.65),
    (0.95, 3, 0.75),
    (0.95, 4, 0.08),
    (0.85, 2, 0.08),
    (0.6, 0, 0.85),
    (0.62, 0, 0.8),
    (0.85, 1, 0.6),
    (0.6, 1, 0.1),
    (0.5, 2, 0.15),
    (0.9, 4, 0.1),
)


def make_speakers(sentences: Sequence[str], *, speakers: int, utterances: int, seed: int) -> list[Pair]:
    """Make utterances of synthetic speakers, some without an error; a breaking edit changes one word if possible."""
    rng, corpus = random.Random(seed), Corpus.of(sentences)
    found = []
    for n in range(speakers):
        erroneous, harmless, breaking = SPEAKERS[n % len(SPEAKERS)]
        for text in rng.sample(corpus.sentences, min(utterances, len(corpus.sentences))):
            pair = Pair(text, text, True, "0")
            if rng.random() < erroneous:
                made = (edit_sentence(text, harmless, rng.random() < breaking, rng, corpus) for _ in range(5))
                pair = next(filter(None, made), pair)
            found.append(dataclasses.replace(pair, speaker=f"S{n + 1}"))
    return found
