"""Controlled edits: pairs whose label is known by construction, where nobody has rated any.

An edit of severity 0 or 1 leaves the meaning as it is; one of severity 2 breaks it. First the class of a pair is drawn,
then its edits: 1 to 4 harmless ones, or a breaking one and up to 3 harmless ones, so that word error rates of both
classes overlap. The label is a rule's, not a rater's, and figures made of such pairs say "controlled edits".
"""

import dataclasses
import random
from collections.abc import Sequence

from eeg2text_jax.judge.edits import BREAKING, HARMLESS, MILD, Corpus
from eeg2text_jax.judge.pairs import Pair, is_exact, normalize


def edit_sentence(text: str, harmless: int, breaking: bool, rng: random.Random, corpus: Corpus) -> Pair | None:
    """A pair of a sentence and its edited copy: `harmless` edits of different kinds, and a breaking one before them.

    None where the sentence does not allow it.
    """
    words, kind = text.split(), ""
    if breaking:
        for name in rng.sample(list(BREAKING), len(BREAKING)):
            if (changed := BREAKING[name](words, rng, corpus)) is not None:
                words, kind = changed, name
                break
        else:
            return None
    done = []
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
    """Pairs of every usable sentence, in their order; those that could not be made are passed over."""
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


# Made-up speakers: share of their utterances with an error, harmless edits of each, share of those that break. Some
# have many errors that do not matter, some few that do.
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
    """Utterances of made-up speakers, some without an error; those of small edits break one word where they can."""
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
