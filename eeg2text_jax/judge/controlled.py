"""Controlled edits: pairs of a sentence and its edited copy, labelled by the kind of edit instead of by people.

A harmless edit (severity 0 or 1) keeps the meaning; a breaking edit (severity 2) does not. A pair that keeps the
meaning has 1 to 4 harmless edits; a pair that loses it has one breaking edit and 0 to 3 harmless edits. The word error
rates of the two classes therefore overlap. Results from such pairs are labelled "controlled edits".
"""

import dataclasses
import random
from collections.abc import Sequence

from eeg2text_jax.judge.edits import BREAKING, HARMLESS, MILD, Corpus
from eeg2text_jax.judge.pairs import Pair, is_exact, normalize


def edit_sentence(text: str, harmless: int, breaking: bool, rng: random.Random, corpus: Corpus) -> Pair | None:
    """Return a sentence paired with its edited copy, or None if the sentence does not allow these edits.

    Args:
      harmless: number of harmless edits, each of another kind; fewer if the sentence allows fewer.
      breaking: whether to make a breaking edit first.
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
    """Return at most `per_sentence` pairs for every sentence of 5 to 40 words.

    `preserved` is the probability that a pair keeps the meaning.
    """
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


# Synthetic speakers: share of utterances with an error, harmless edits in such an utterance, and the share of such
# utterances whose meaning is lost. Some speakers have many harmless errors, some have few severe ones.
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
    """Return at most `utterances` pairs for each of `speakers` synthetic speakers; some pairs have no error."""
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
