"""Single edits of an English sentence, grouped by their effect on the meaning: severity 0, 1 or 2.

An edit maps the words of a sentence to the edited words, or to None if the sentence does not allow the edit.
"""

import dataclasses
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence

from rapidfuzz.distance import Levenshtein

from eeg2text_jax.judge import lexicon

Edit = Callable[[list[str], random.Random, "Corpus"], list[str] | None]
_WORD = re.compile(r"^(\W*)(.*?)(\W*)$", re.DOTALL)  # groups: punctuation, word, punctuation


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The sentences to edit, with all their words and names, from which edits take replacements."""

    sentences: tuple[str, ...]
    counts: Counter  # frequency of each word in lower case
    content: tuple[str, ...]  # content words in lower case
    names: tuple[str, ...]  # words that are capitalized within sentences and never in lower case

    @classmethod
    def of(cls, sentences: Sequence[str]) -> "Corpus":
        """Make a corpus from the distinct sentences of 5 to 40 words."""
        usable = [
            text for text in dict.fromkeys(" ".join(s.split()) for s in sentences) if 5 <= len(text.split()) <= 40
        ]
        counts = Counter(core(word).lower() for text in usable for word in text.split())
        spelled = {core(word) for text in usable for word in text.split()[1:]}  # without first words of sentences
        content = sorted(w for w in spelled if len(w) > 2 and w.isalpha() and w.islower() and w not in lexicon.STOP)
        names = {word for word in spelled if _is_name(word) and word.lower() not in spelled}
        return cls(tuple(usable), counts, tuple(content), tuple(sorted(names)))


def core(word: str) -> str:
    """Return a word without the punctuation around it."""
    return _WORD.match(word)[2]


def put(word: str, new: str) -> str:
    """Return `new` with the punctuation and the capital letter of `word`."""
    before, old, after = _WORD.match(word).groups()
    return before + (new[:1].upper() + new[1:] if old[:1].isupper() and not new[:1].isdigit() else new) + after


def _is_name(word: str) -> bool:
    """Return whether a word looks like a name: capitalized, longer than two letters, and not a function word."""
    inside = core(word)
    return len(inside) > 2 and inside[0].isupper() and inside[1:].islower() and inside.lower() not in lexicon.STOP


def _places(words: Sequence[str], fits: Callable[[str], bool]) -> list[int]:
    """Return the positions of the words for which `fits` is true, given the word in lower case without punctuation."""
    return [i for i, word in enumerate(words) if fits(core(word).lower())]


def _replace_one(
    words: Sequence[str], places: Sequence[int], rng: random.Random, new: Callable[[str], str | None]
) -> list[str] | None:
    """Replace the word at one of `places`, drawn at random, by `new(word)`; None if no place or no new word exists."""
    if not places:
        return None
    at = rng.choice(places)
    word = new(core(words[at]))
    return None if word is None else [*words[:at], put(words[at], word), *words[at + 1 :]]


def _exchange(table: dict[str, str]) -> Edit:
    """Return an edit that replaces one word by its counterpart in `table`; names are not replaced."""

    def edit(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
        places = [i for i in _places(words, table.__contains__) if i == 0 or not _is_name(words[i])]
        return _replace_one(words, places, rng, lambda word: table[word.lower()])

    return edit


def contraction(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Contract two words (`do not` becomes `don't`), or expand a contraction to two words."""
    lowered = [core(word).lower() for word in words]
    back = {short: long for long, short in lexicon.CONTRACTIONS.items()}
    found = []  # position, number of words to replace, replacement
    for i, word in enumerate(lowered):
        two = lexicon.CONTRACTIONS.get(" ".join(lowered[i : i + 2]))
        if two and i + 1 < len(words) and core(words[i]) == words[i]:
            found.append((i, 2, put(words[i + 1], two)))
        elif word in back and not word.endswith("'s"):
            found.append((i, 1, put(words[i], back[word])))
    if not found:
        return None
    at, length, new = rng.choice(found)
    return [*words[:at], new, *words[at + length :]]


def filler(words: list[str], rng: random.Random, corpus: Corpus) -> list[str]:
    """Insert a filler, such as um."""
    at = rng.randrange(len(words))
    return [*words[:at], rng.choice(lexicon.FILLERS), *words[at:]]


def repeat(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Repeat a word."""
    at = rng.randrange(len(words))
    return [*words[: at + 1], *words[at:]]


def article(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Drop an article, or replace `the` by `a`, or replace `a` or `an` by `the`."""
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

    def new(word: str) -> str:
        for ending in ("ing", "ed", "s"):
            if word.endswith(ending) and len(word) > len(ending) + 2:
                return word[: -len(ending)]
        return f"{word}s" if word[-1] not in "sxz" else f"{word}ing"

    return _replace_one(words, [i for i in _places(words, fits) if not _is_name(words[i])], rng, new)


def typo(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Drop a letter of a long word, or swap two neighboring letters; the result is not a word of the corpus."""

    def new(word: str) -> str | None:
        for _ in range(8):
            i = rng.randrange(1, len(word) - 2)
            new = word[:i] + word[i + 1 :] if rng.random() < 0.5 else word[:i] + word[i + 1] + word[i] + word[i + 2 :]
            if new != word and new.lower() not in corpus.counts:
                return new
        return None

    return _replace_one(words, _places(words, lambda word: len(word) >= 7 and word.isalpha()), rng, new)


def negation(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Remove `not` or `never`, or else insert `not` after an auxiliary."""
    nots = _places(words, ("not", "never").__contains__)
    if nots:
        at = rng.choice(nots)
        return words[:at] + words[at + 1 :]
    places = [i for i in _places(words, lexicon.AUXILIARIES.__contains__) if core(words[i]) == words[i]]
    if not places:
        return None
    at = rng.choice(places)
    if words[at] == "can":
        return [*words[:at], "cannot", *words[at + 1 :]]
    return [*words[: at + 1], "not", *words[at + 1 :]]


def number(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Replace a number by another one."""

    def new(word: str) -> str:
        if not word.isdecimal():
            return rng.choice([other for other in lexicon.NUMERALS if other != word.lower()])
        if len(word) < 3:
            return str(rng.choice([n for n in range(2, 60) if n != int(word)]))
        return str(int(word) + rng.choice([-1, 1]) * rng.randrange(2, 40 if len(word) > 3 else 90))

    return _replace_one(words, _places(words, lambda word: word.isdecimal() or word in lexicon.NUMERALS), rng, new)


def entity(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Replace a name by a name from another sentence.

    Names that also occur in lower case (`World War`) are not replaced, because a reader would correct the error.
    """
    here = {core(word) for word in words}
    others = [name for name in corpus.names if name not in here]
    places = [i for i in range(1, len(words)) if core(words[i]) in corpus.names] if others else []
    return _replace_one(words, places, rng, lambda _: rng.choice(others))


def confusion(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Replace a content word by another one that sounds similar.

    At least two letters differ, because a listener would correct `song` to `son`.
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
    """Drop the rarest third of the content words (at least two); None if there are fewer than three content words."""
    places = _places(words, lambda word: len(word) > 2 and word.isalpha() and word not in lexicon.STOP)
    if len(places) < 3:
        return None
    rarest = sorted(places, key=lambda i: (corpus.counts[core(words[i]).lower()], i))
    gone = set(rarest[: max(2, round(len(places) / 3))])
    return [word for i, word in enumerate(words) if i not in gone]


def cut(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Keep only the first 40 to 65 % of the words."""
    return words[: max(1, int(len(words) * rng.uniform(0.40, 0.65)))]


def other(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Return another sentence of similar length, as a decoder that ignores its input would."""
    near = [s for s in corpus.sentences if abs(len(s.split()) - len(words)) <= 1 and s.split() != words]
    return rng.choice(near).split() if near else None


SLIGHT: dict[str, Edit] = {  # severity 0, meaning fully preserved
    "contraction": contraction,
    "variant": _exchange(lexicon.VARIANTS),
    "numeral": _exchange(lexicon.NUMERALS | {digits: word for word, digits in lexicon.NUMERALS.items()}),
    "filler": filler,
    "repeat": repeat,
}
MILD: dict[str, Edit] = {  # severity 1, meaning mostly preserved
    "article": article,
    "inflect": inflect,
    "typo": typo,
    "function": _exchange(lexicon.FUNCTIONS),
}
BREAKING: dict[str, Edit] = {  # severity 2, meaning lost
    "negation": negation,
    "number": number,
    "entity": entity,
    "antonym": _exchange(lexicon.ANTONYMS),
    "confusion": confusion,
    "drop": drop,
    "cut": cut,
    "other": other,
}
HARMLESS = SLIGHT | MILD
