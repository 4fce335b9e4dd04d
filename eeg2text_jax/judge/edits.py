"""Single edits of an English sentence, grouped by their effect on the meaning: severity 0, 1 or 2."""

import dataclasses
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence

from rapidfuzz.distance import Levenshtein

from eeg2text_jax.judge import lexicon

Edit = Callable[[list[str], random.Random, "Corpus"], list[str] | None]  # None: the sentence has nothing to edit
_WORD = re.compile(r"^(\W*)(.*?)(\W*)$", re.DOTALL)
_VARIANTS, _FUNCTIONS = lexicon.pairs_of(lexicon.VARIANTS), lexicon.pairs_of(lexicon.FUNCTIONS)
_ANTONYMS = lexicon.pairs_of(lexicon.ANTONYMS)
_SPELLED = lexicon.NUMERALS | {digits: word for word, digits in lexicon.NUMERALS.items()}
FEWEST_WORDS, MOST_WORDS = 5, 40


@dataclasses.dataclass(frozen=True)
class Corpus:
    """All sentences to edit; replacement words and names come from other sentences of the corpus."""

    sentences: tuple[str, ...]
    counts: Counter  # of all words, lower case
    content: tuple[str, ...]  # content words in lower case
    names: tuple[str, ...]  # capitalized within a sentence, and never in lower case

    @classmethod
    def of(cls, sentences: Sequence[str]) -> "Corpus":
        """Make a corpus from the distinct sentences of usable length."""
        usable = [text for text in dict.fromkeys(" ".join(s.split()) for s in sentences) if _usable(text)]
        counts = Counter(core(word).lower() for text in usable for word in text.split())
        spelled = {core(word) for text in usable for word in text.split()[1:]}  # without first words
        content = sorted(w for w in spelled if len(w) > 2 and w.isalpha() and w.islower() and w not in lexicon.STOP)
        names = {word for word in spelled if _is_name(word) and word.lower() not in spelled}
        return cls(tuple(usable), counts, tuple(content), tuple(sorted(names)))


def _usable(text: str) -> bool:
    return FEWEST_WORDS <= len(text.split()) <= MOST_WORDS


def core(word: str) -> str:
    """Strip the punctuation around a word."""
    return _WORD.match(word)[2]


def put(word: str, new: str) -> str:
    """Replace a word by `new`, keeping its punctuation and capital letter."""
    before, old, after = _WORD.match(word).groups()
    return before + (new[:1].upper() + new[1:] if old[:1].isupper() and not new[:1].isdigit() else new) + after


def _places(words: Sequence[str], fits: Callable[[str], bool]) -> list[int]:
    return [i for i, word in enumerate(words) if fits(core(word).lower())]


def _exchange(table: dict[str, str]) -> Edit:
    """Return an edit that replaces a word by its counterpart in `table`; names are not changed."""

    def edit(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
        places = [i for i in _places(words, table.__contains__) if i == 0 or not _is_name(words[i])]
        if not places:
            return None
        at = rng.choice(places)
        return [*words[:at], put(words[at], table[core(words[at]).lower()]), *words[at + 1 :]]

    return edit


def contraction(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Contract or expand: do not <-> don't."""
    lowered = [core(word).lower() for word in words]
    back = {short: long for long, short in lexicon.CONTRACTIONS.items()}
    found = []
    for i, word in enumerate(lowered):
        two = " ".join(lowered[i : i + 2])
        if two in lexicon.CONTRACTIONS and core(words[i]) == words[i]:
            found.append((i, 2, put(words[i + 1], lexicon.CONTRACTIONS[two])))
        elif word in back and not word.endswith("'s"):
            found.append((i, 1, put(words[i], back[word])))
    if not found:
        return None
    at, length, new = rng.choice(found)
    return [*words[:at], put(words[at], core(new)) if length == 1 else new, *words[at + length :]]


def filler(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Insert a filler: um, you know."""
    at = rng.randrange(len(words))
    return [*words[:at], rng.choice(lexicon.FILLERS), *words[at:]]


def repeat(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Repeat a word."""
    at = rng.randrange(len(words))
    return [*words[: at + 1], *words[at:]]


def article(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Drop an article, or exchange a and the."""
    places = _places(words, ("a", "an", "the").__contains__)
    if not places:
        return None
    at = rng.choice(places)
    if rng.random() < 0.5:
        return words[:at] + words[at + 1 :]
    new = "a" if core(words[at]).lower() == "the" else "the"
    return [*words[:at], put(words[at], new), *words[at + 1 :]]


def inflect(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Add or remove the ending -s, -ed or -ing."""

    def fits(word: str) -> bool:
        return len(word) > 3 and word.isalpha() and word not in lexicon.STOP and not word.endswith(("ss", "ly", "st"))

    places = [i for i in _places(words, fits) if not _is_name(words[i])]
    if not places:
        return None
    at = rng.choice(places)
    word = core(words[at])
    for ending in ("ing", "ed", "s"):
        if word.endswith(ending) and len(word) > len(ending) + 2:
            new = word[: -len(ending)]
            break
    else:
        new = f"{word}s" if word[-1] not in "sxz" else f"{word}ing"
    return [*words[:at], put(words[at], new), *words[at + 1 :]]


def typo(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Drop a letter or exchange two in a long word, so that the result is not a word."""
    places = _places(words, lambda word: len(word) >= 7 and word.isalpha())
    if not places:
        return None
    at = rng.choice(places)
    word = core(words[at])
    for _ in range(8):
        i = rng.randrange(1, len(word) - 2)
        new = word[:i] + word[i + 1 :] if rng.random() < 0.5 else word[:i] + word[i + 1] + word[i] + word[i + 2 :]
        if new != word and new.lower() not in corpus.counts:
            return [*words[:at], put(words[at], new), *words[at + 1 :]]
    return None


def negation(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Insert `not` after an auxiliary, or remove it."""
    nots = _places(words, ("not", "never").__contains__)
    if nots:
        at = rng.choice(nots)
        return words[:at] + words[at + 1 :]
    places = [i for i in _places(words, lexicon.AUXILIARIES.__contains__) if core(words[i]) == words[i]]
    if not places:
        return None
    at = rng.choice(places)
    if words[at] in lexicon.IRREGULAR:
        return [*words[:at], lexicon.IRREGULAR[words[at]], *words[at + 1 :]]
    return [*words[: at + 1], "not", *words[at + 1 :]]


def number(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Replace a number by another value."""
    places = _places(words, lambda word: word.isdigit() or word in lexicon.NUMERALS)
    if not places:
        return None
    at = rng.choice(places)
    word = core(words[at])
    if not word.isdigit():
        new = rng.choice([other for other in lexicon.NUMERALS if other != word.lower()])
    elif len(word) < 3:
        new = str(rng.choice([n for n in range(2, 60) if n != int(word)]))
    else:
        new = str(int(word) + rng.choice([-1, 1]) * rng.randrange(2, 40 if len(word) > 3 else 90))
    return [*words[:at], put(words[at], new), *words[at + 1 :]]


def _is_name(word: str) -> bool:
    inside = core(word)
    return len(inside) > 2 and inside[0].isupper() and inside[1:].islower() and inside.lower() not in lexicon.STOP


def entity(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Replace a name by another sentence's name; not a common word in a name (World War), which a reader corrects."""
    places = [i for i in range(1, len(words)) if core(words[i]) in corpus.names]
    here = {core(word) for word in words}
    others = [name for name in corpus.names if name not in here]
    if not places or not others:
        return None
    at = rng.choice(places)
    return [*words[:at], put(words[at], rng.choice(others)), *words[at + 1 :]]


def confusion(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Replace a content word by another one that sounds similar.

    More than one letter must differ: a listener corrects son and song.
    """
    places = [i for i in _places(words, corpus.content.__contains__) if not _is_name(words[i])]
    rng.shuffle(places)
    for at in places[:4]:
        word = core(words[at]).lower()
        near = [
            other
            for other in corpus.content
            if other[:4] != word[:4]
            and abs(len(other) - len(word)) <= len(word) // 2
            and 2 <= Levenshtein.distance(word, other, score_cutoff=len(word) // 2) <= len(word) // 2
        ]
        if near:
            return [*words[:at], put(words[at], rng.choice(near)), *words[at + 1 :]]
    return None


def drop(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Drop the rarest third of the content words, at least two; years and dates do not count."""
    places = _places(words, lambda word: len(word) > 2 and word.isalpha() and word not in lexicon.STOP)
    if len(places) < 3:
        return None
    rarest = sorted(places, key=lambda i: (corpus.counts[core(words[i]).lower()], i))
    gone = set(rarest[: max(2, round(len(places) / 3))])
    return [word for i, word in enumerate(words) if i not in gone]


def cut(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Keep only the first part."""
    return words[: max(1, int(len(words) * rng.uniform(0.40, 0.65)))]


def other(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Take another sentence of similar length, like a decoder that ignores its input."""
    near = [s for s in corpus.sentences if abs(len(s.split()) - len(words)) <= 1 and s.split() != words]
    return rng.choice(near).split() if near else None


SLIGHT: dict[str, Edit] = {  # severity 0
    "contraction": contraction,
    "variant": _exchange(_VARIANTS),
    "numeral": _exchange(_SPELLED),
    "filler": filler,
    "repeat": repeat,
}
MILD: dict[str, Edit] = {  # severity 1
    "article": article,
    "inflect": inflect,
    "typo": typo,
    "function": _exchange(_FUNCTIONS),
}
BREAKING: dict[str, Edit] = {  # severity 2
    "negation": negation,
    "number": number,
    "entity": entity,
    "antonym": _exchange(_ANTONYMS),
    "confusion": confusion,
    "drop": drop,
    "cut": cut,
    "other": other,
}
HARMLESS = SLIGHT | MILD
