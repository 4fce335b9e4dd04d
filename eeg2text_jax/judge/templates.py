"""Sentences made from templates: the toy data set for tiny models, and a corpus for controlled edits."""

import random
from collections.abc import Iterator

from eeg2text_jax.judge.pairs import Pair, is_exact

TOY_SENTENCE = "the {who} {action} {count} houses in {place}"
SLOTS = {  # slot of a template -> its possible words
    "who": ("boy", "girl", "teacher", "doctor"),
    "action": ("saw", "found", "sold", "painted"),
    "count": ("two", "three", "four", "five"),
    "place": ("london", "paris", "rome", "berlin"),
}
MEANING = "meaning"  # the question whether all slots have the same values in both sentences
QUESTIONS = (MEANING, *SLOTS)  # a slot's name asks whether this slot has the same value in both sentences
_FILLERS = ("well", "um")
LABELS = ("yes", "no")
# The vocabulary of the toy data set: special tokens, the words of the wording, the words of the sentences.
TOY_WORDS = (
    *("<pad>", "</s>", "<unk>", *LABELS, *QUESTIONS, "truth:", "said:", "same:", "the", "a", "in", "houses"),
    *(*_FILLERS, *(word for words in SLOTS.values() for word in words)),
)
TOY_TEMPLATE = "truth: {reference} said: {hypothesis} same:"


def toy_pair(rng: random.Random) -> tuple[Pair, dict[str, bool]]:
    """Return a random pair and the right answer to each of `QUESTIONS` about it.

    In about half of the pairs, one or two slots are changed; a fifth of the changed slots get a made-up word. In one
    pair of twelve, the hypothesis consists of made-up words only.
    """
    chosen = {name: rng.choice(words) for name, words in SLOTS.items()}
    said, changed = dict(chosen), set()
    if rng.random() >= 0.45:
        changed = set(rng.sample(list(SLOTS), rng.choice((1, 1, 2))))
    for name in sorted(changed):
        others = [word for word in SLOTS[name] if word != chosen[name]]
        said[name] = rng.choice(others) if rng.random() < 0.8 else made_up(rng)
    harmless = rng.sample(("article", "repeat", "filler"), rng.randint(0 if changed else 1, 1 if changed else 2))
    words = TOY_SENTENCE.format(**said).split()
    if "article" in harmless:
        words[0] = "a"
    if "repeat" in harmless:
        at = rng.randrange(len(words))
        words.insert(at, words[at])
    if "filler" in harmless:
        words.insert(rng.choice((0, len(words))), rng.choice(_FILLERS))
    if rng.random() < 1 / 12:
        words, changed = [made_up(rng) for _ in range(rng.randint(1, 8))], set(SLOTS)
    rated = "2" if changed else "1"
    pair = Pair(TOY_SENTENCE.format(**chosen), " ".join(words), not changed, rated, kind=",".join(sorted(changed)))
    return pair, {MEANING: not changed, **{name: name not in changed for name in SLOTS}}


def made_up(rng: random.Random) -> str:
    """Return a word of random consonants, which is not in the toy vocabulary."""
    return "".join(rng.choices("bcdfghjklmnpqrstvwxz", k=rng.randint(3, 6)))


def toy_pairs(count: int, seed: int) -> list[Pair]:
    """Return `count` random pairs of the toy data set; pairs without an error are left out."""
    rng, found = random.Random(seed), list[Pair]()
    while len(found) < count:
        pair, _ = toy_pair(rng)
        if not is_exact(pair.reference, pair.hypothesis):
            found.append(pair)
    return found


_PEOPLE = ("Anna Keller", "the young teacher", "Henry Moore", "her brother", "a famous singer", "the president")
_PATTERNS = (
    "{who} was born in {place} in {year} and {did} there for {n} years.",
    "In {year}, {who} did not leave {place} because the {thing} was not {good}.",
    "The {thing} that {who} {did} in {place} is {good} and has won {n} awards.",
    "After {n} months in {place}, {who} started a {good} company with an old friend.",
    "It is a {good} film about {who}, who {did} in {place} before the war.",
    "{who} will never forget the {good} {thing} that they bought in {place}.",
    "Everyone in {place} knows that {who} has {n} children and a very {good} {thing}.",
    "There are {n} reasons why the {thing} of {who} could be {good} for {place}.",
)
_PLACES = ("London", "Ohio", "Berlin", "Boston", "Texas", "Vienna", "Madrid", "Chicago", "Dublin", "Geneva")
_THINGS = ("story", "picture", "house", "program", "letter", "journey", "garden", "theory", "machine", "building")
_GOOD = ("good", "new", "large", "strange", "famous", "difficult", "beautiful", "simple", "interesting", "long")
_DID = ("worked", "studied", "lived", "performed", "travelled", "waited", "married", "published", "returned")


def sentences(count: int, seed: int = 0) -> Iterator[str]:
    """Yield `count` distinct sentences, for controlled edits when no corpus is given."""
    rng, seen = random.Random(seed), set[str]()
    while len(seen) < count:
        text = rng.choice(_PATTERNS).format(
            who=rng.choice(_PEOPLE),
            place=rng.choice(_PLACES),
            year=rng.randrange(1850, 2005),
            n=rng.choice(("two", "three", "five", "seven", "ten")),
            thing=rng.choice(_THINGS),
            good=rng.choice(_GOOD),
            did=rng.choice(_DID),
        )
        text = text[0].upper() + text[1:]
        if text not in seen:
            seen.add(text)
            yield text
