"""Edits of an English sentence, by their effect on the meaning: severity 0, 1 or 2.

An edit maps a sentence's words to the edited words, or to None if the sentence does not allow it.
"""

import dataclasses
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence

from rapidfuzz.distance import Levenshtein

from eeg2text_jax.judge.pairs import Pair, normalize

# Word lists, all in lower case.


def _pairs_of(listed: str) -> dict[str, str]:
    """Map each word of "word counterpart,..." to its first counterpart, and one-word counterparts back."""
    counterparts: dict[str, str] = {}
    for entry in listed.split(","):
        left, _, right = entry.strip().partition(" ")
        counterparts.setdefault(left, right)
        if " " not in right:
            counterparts.setdefault(right, left)
    return counterparts


_CONTRACTIONS = (
    "do not:don't,does not:doesn't,did not:didn't,is not:isn't,are not:aren't,was not:wasn't,were not:weren't,"
    "has not:hasn't,have not:haven't,had not:hadn't,cannot:can't,could not:couldn't,would not:wouldn't,"
    "should not:shouldn't,will not:won't,it is:it's,he is:he's,she is:she's,that is:that's,there is:there's,"
    "they are:they're,we are:we're,you are:you're,i am:i'm,i have:i've,they have:they've,you will:you'll,"
    "he would:he'd,let us:let's"
)
CONTRACTIONS = dict(entry.split(":") for entry in _CONTRACTIONS.split(","))

# Spelling variants, and synonyms that fit most sentences.
VARIANTS = _pairs_of(
    "color colour,favorite favourite,honor honour,humor humour,labor labour,theater theatre,center centre,gray grey,"
    "program programme,traveled travelled,organized organised,realize realise,recognize recognise,film movie,films "
    "movies,big large,begin start,began started,buy purchase,bought purchased,child kid,children kids,nearly almost,"
    "often frequently,quick fast,quickly rapidly,sick ill,maybe perhaps,whole entire,wonderful marvelous,funny "
    "amusing,boring dull,smart clever,brilliant splendid,story tale,career profession,received got,located situated,"
    "founded established,attended went to,home house,father dad,mother mum,town city,author writer,physician doctor,"
    "attorney lawyer,job position,prize award,company firm,about around,later afterwards,approximately roughly,wife "
    "spouse,numerous many,died passed away,however but,movie picture,actors performers,scary frightening,sad unhappy,"
    "hard difficult,simple easy,strange odd,completely entirely,usually normally,help assist,helped assisted,kill "
    "murder,killed murdered,famous renowned,main chief,world globe,road street,war conflict,ended finished,shows "
    "reveals,moving touching,audience viewers"
)

_NUMBER_WORDS = "two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty"
_DIGITS = "2 3 4 5 6 7 8 9 10 11 12 20 30 40 50"
NUMERALS = dict(zip(_NUMBER_WORDS.split(" "), _DIGITS.split(" "), strict=True))

FILLERS = ("um", "uh", "you know", "well", "like", "i mean", "er")

# Function words that are easily confused; a listener corrects such an error.
FUNCTIONS = _pairs_of(
    "which that,in at,their there,his is,on in,for four,to too,with and,of off,its it's,your you're,then than,who that,"
    "by bye,whose who's,into in,from form,a an,as is,was were,has have,are our"
)

_AUXILIARIES = "is are was were will would can could should must may might does did has had have do am"
AUXILIARIES = frozenset(_AUXILIARIES.split(" "))

ANTONYMS = _pairs_of(
    "good bad,best worst,better worse,first last,early late,before after,always never,more less,most least,high low,"
    "higher lower,old young,older younger,new old,big small,large small,long short,longer shorter,strong weak,rich "
    "poor,happy sad,hot cold,warm cold,fast slow,easy hard,full empty,open closed,right wrong,true false,success "
    "failure,successful unsuccessful,succeeded failed,won lost,win lose,love hate,loved hated,loves hates,like "
    "dislike,liked disliked,born buried,married divorced,marriage divorce,began ended,begin end,beginning end,start "
    "stop,started stopped,increase decrease,increased decreased,rise fall,rose fell,came left,arrived departed,joined "
    "left,entered left,accepted refused,accept refuse,agreed disagreed,gave took,give take,bought sold,buy sell,built "
    "destroyed,friend enemy,friends enemies,mother father,brother sister,brothers sisters,son daughter,sons daughters,"
    "husband wife,man woman,men women,boy girl,boys girls,king queen,north south,northern southern,east west,eastern "
    "western,day night,morning evening,war peace,life death,alive dead,died survived,interesting boring,fascinating "
    "dull,funny unfunny,exciting tedious,brilliant stupid,beautiful ugly,perfect flawed,rare common,famous unknown,"
    "public private,inside outside,above below,near far,many few,all none,everyone nobody,everything nothing,major "
    "minor,major slight,majority minority,male female,president secretary,teacher student,winner loser,hero villain,"
    "heroes villains,comedy tragedy,fresh stale,clever silly,serious comic,deep shallow,light dark,bright dim,"
    "enjoyable unpleasant,worth unworthy,positive negative,oldest youngest,largest smallest,highest lowest,remember "
    "forget,with without,together apart,ahead behind,safe dangerous,simple complicated,legal illegal,employed fired,"
    "promoted dismissed,elected defeated,appointed dismissed"
)

_STOP = (
    "a an the and or but nor so yet if then than that which who whom whose this these those there here it its he him "
    "his she her hers they them their we us our you your i me my is are was were be been being am do does did has have "
    "had will would can could shall should may might must of in on at to from by with for as into onto over under "
    "about after before between through during not no never very too also just only even ever when where why how what "
    "all any some such own same other another each both more most less least up down out off again once"
)
STOP = frozenset(_STOP.split(" "))


Edit = Callable[[list[str], random.Random, "Corpus"], list[str] | None]
_WORD = re.compile(r"^(\W*)(.*?)(\W*)$", re.DOTALL)  # groups: punctuation, word, punctuation


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The sentences to edit, with their words and names, which edits put in."""

    sentences: tuple[str, ...]
    counts: Counter  # frequency of each word in lower case
    content: tuple[str, ...]  # content words in lower case
    names: tuple[str, ...]  # words capitalized within sentences, never in lower case

    @classmethod
    def of(cls, sentences: Sequence[str]) -> "Corpus":
        """Make a corpus of the distinct sentences of 5 to 40 words."""
        spaced = dict.fromkeys(" ".join(text.split()) for text in sentences)
        usable = [text for text in spaced if 5 <= len(text.split()) <= 40]
        counts = Counter(core(word).lower() for text in usable for word in text.split())
        spelled = {core(word) for text in usable for word in text.split()[1:]}  # without first words of sentences
        content = sorted(w for w in spelled if len(w) > 2 and w.isalpha() and w.islower() and w not in STOP)
        names = {word for word in spelled if _is_name(word) and word.lower() not in spelled}
        return cls(tuple(usable), counts, tuple(content), tuple(sorted(names)))


def core(word: str) -> str:
    """Return a word without punctuation around it."""
    return _WORD.match(word)[2]


def put(word: str, new: str) -> str:
    """Return `new` with the punctuation and the capital letter of `word`."""
    before, old, after = _WORD.match(word).groups()
    return before + (new[:1].upper() + new[1:] if old[:1].isupper() and not new[:1].isdigit() else new) + after


def _is_name(word: str) -> bool:
    """Whether a word looks like a name: capitalized, longer than two letters, no function word."""
    inside = core(word)
    return len(inside) > 2 and inside[0].isupper() and inside[1:].islower() and inside.lower() not in STOP


def _places(words: Sequence[str], fits: Callable[[str], bool]) -> list[int]:
    """Return the positions of the words that fit; `fits` gets a word in lower case without punctuation."""
    return [i for i, word in enumerate(words) if fits(core(word).lower())]


def _replace_one(
    words: Sequence[str], places: Sequence[int], rng: random.Random, new: Callable[[str], str | None]
) -> list[str] | None:
    """Replace the word at one of `places`, drawn at random, by `new(word)`; "" drops it, None makes no edit."""
    if not places:
        return None
    at = rng.choice(places)
    word = new(core(words[at]))
    return None if word is None else [*words[:at], *([put(words[at], word)] if word else []), *words[at + 1 :]]


def _exchange(table: dict[str, str]) -> Edit:
    """Return an edit that replaces a word, but no name, by its counterpart in `table`."""

    def edit(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
        places = [i for i in _places(words, table.__contains__) if i == 0 or not _is_name(words[i])]
        return _replace_one(words, places, rng, lambda word: table[word.lower()])

    return edit


def contraction(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Contract two words (`do not` to `don't`), or expand a contraction."""
    lowered = [core(word).lower() for word in words]
    back = {short: long for long, short in CONTRACTIONS.items() if not short.endswith("'s")}
    edits = []  # position, number of words to replace, replacement
    for i, word in enumerate(lowered):
        two = CONTRACTIONS.get(" ".join(lowered[i : i + 2]))
        if two and i + 1 < len(words) and core(words[i]) == words[i]:
            edits.append((i, 2, put(words[i + 1], two)))
        elif word in back:
            edits.append((i, 1, put(words[i], back[word])))
    if not edits:
        return None
    at, length, new = rng.choice(edits)
    return [*words[:at], new, *words[at + length :]]


def filler(words: list[str], rng: random.Random, corpus: Corpus) -> list[str]:
    """Insert a filler, such as um."""
    at = rng.randrange(len(words))
    return [*words[:at], rng.choice(FILLERS), *words[at:]]


def repeat(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Repeat a word."""
    at = rng.randrange(len(words))
    return [*words[: at + 1], *words[at:]]


def article(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Drop an article, or replace `the` by `a`, or replace `a` or `an` by `the`."""

    def new(word: str) -> str:
        return "" if rng.random() < 0.5 else "a" if word.lower() == "the" else "the"

    return _replace_one(words, _places(words, ("a", "an", "the").__contains__), rng, new)


def inflect(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Add or remove the ending -s, -ed or -ing."""

    def fits(word: str) -> bool:
        return len(word) > 3 and word.isalpha() and word not in STOP and not word.endswith(("ss", "ly", "st"))

    def new(word: str) -> str:
        for ending in ("ing", "ed", "s"):
            if word.endswith(ending) and len(word) > len(ending) + 2:
                return word[: -len(ending)]
        return f"{word}s" if word[-1] not in "sxz" else f"{word}ing"

    return _replace_one(words, [i for i in _places(words, fits) if not _is_name(words[i])], rng, new)


def typo(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Drop a letter of a long word, or swap two neighbors; the result is no word of the corpus."""

    def new(word: str) -> str | None:
        for _ in range(8):
            i = rng.randrange(1, len(word) - 2)
            new = word[:i] + word[i + 1 :] if rng.random() < 0.5 else word[:i] + word[i + 1] + word[i] + word[i + 2 :]
            if new != word and new.lower() not in corpus.counts:
                return new
        return None

    return _replace_one(words, _places(words, lambda word: len(word) >= 7 and word.isalpha()), rng, new)


def negation(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Remove `not` or `never`, else insert `not` after an auxiliary."""
    if nots := _places(words, ("not", "never").__contains__):
        return _replace_one(words, nots, rng, lambda _: "")
    places = [i for i in _places(words, AUXILIARIES.__contains__) if core(words[i]) == words[i]]
    if not places:
        return None
    at = rng.choice(places)
    new = ["cannot"] if words[at] == "can" else [words[at], "not"]
    return [*words[:at], *new, *words[at + 1 :]]


def number(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Replace a number by another."""

    def new(word: str) -> str:
        if not word.isdecimal():
            return rng.choice([other for other in NUMERALS if other != word.lower()])
        if len(word) < 3:
            return str(rng.choice([n for n in range(2, 60) if n != int(word)]))
        return str(int(word) + rng.choice([-1, 1]) * rng.randrange(2, 40 if len(word) > 3 else 90))

    return _replace_one(words, _places(words, lambda word: word.isdecimal() or word in NUMERALS), rng, new)


def entity(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Replace a name by that of another sentence, but none that is also a word (`World War`): readers correct it."""
    here = {core(word) for word in words}
    others = [name for name in corpus.names if name not in here]
    places = [i for i in range(1, len(words)) if core(words[i]) in corpus.names] if others else []
    return _replace_one(words, places, rng, lambda _: rng.choice(others))


def confusion(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Replace a content word by one that sounds similar; a listener would correct one other letter (`song`, `son`)."""
    places = [i for i in _places(words, corpus.content.__contains__) if not _is_name(words[i])]
    rng.shuffle(places)
    for at in places[:4]:
        word = core(words[at]).lower()
        most = len(word) // 2
        near = [
            other
            for other in corpus.content
            if other[:4] != word[:4]
            and abs(len(other) - len(word)) <= most
            and 2 <= Levenshtein.distance(word, other, score_cutoff=most) <= most
        ]
        if near:
            return [*words[:at], put(words[at], rng.choice(near)), *words[at + 1 :]]
    return None


def drop(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Drop the rarest third of the content words, at least two; None if there are fewer than three."""
    places = _places(words, lambda word: len(word) > 2 and word.isalpha() and word not in STOP)
    if len(places) < 3:
        return None
    rarest = sorted(places, key=lambda i: (corpus.counts[core(words[i]).lower()], i))
    gone = set(rarest[: max(2, round(len(places) / 3))])
    return [word for i, word in enumerate(words) if i not in gone]


def other(words: list[str], rng: random.Random, corpus: Corpus) -> list[str] | None:
    """Take another sentence of similar length, as a decoder that ignores its input would."""
    near = [s for s in corpus.sentences if abs(len(s.split()) - len(words)) <= 1 and s.split() != words]
    return rng.choice(near).split() if near else None


SLIGHT: dict[str, Edit] = {  # severity 0, meaning fully preserved
    "contraction": contraction,
    "variant": _exchange(VARIANTS),
    "numeral": _exchange(NUMERALS | {digits: word for word, digits in NUMERALS.items()}),
    "filler": filler,
    "repeat": repeat,
}
MILD: dict[str, Edit] = {  # severity 1, meaning mostly preserved
    "article": article,
    "inflect": inflect,
    "typo": typo,
    "function": _exchange(FUNCTIONS),
}
BREAKING: dict[str, Edit] = {  # severity 2, meaning lost
    "negation": negation,
    "number": number,
    "entity": entity,
    "antonym": _exchange(ANTONYMS),
    "confusion": confusion,
    "drop": drop,
    # keep the first 40 to 65 % of the words
    "cut": lambda words, rng, _: words[: max(1, int(len(words) * rng.uniform(0.40, 0.65)))],
    "other": other,
}
HARMLESS = SLIGHT | MILD


# Controlled edits: pairs of a sentence and its edited copy, labelled by the kind of edit.
#
# A pair that keeps the meaning has 1 to 4 harmless edits; one that loses it has a breaking edit and 0 to 3 harmless
# ones. So the word error rates of the classes overlap.


def edit_sentence(text: str, harmless: int, breaking: bool, rng: random.Random, corpus: Corpus) -> Pair | None:
    """Return a sentence with its edited copy, or None if it does not allow these edits.

    The copy has a breaking edit if `breaking`, then at most `harmless` harmless ones of different kinds.
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
        if len(done) < harmless and (changed := HARMLESS[name](words, rng, corpus)) is not None:
            words = changed
            done.append(name)
    rated = "2" if breaking else "1" if set(done) & set(MILD) else "0"
    pair = Pair(text, " ".join(words), not breaking, rated, kind=kind)
    return None if pair.is_exact or not normalize(pair.hypothesis) or not (kind or done) else pair


def make_pairs(sentences: Sequence[str], *, per_sentence: int, preserved: float, seed: int) -> list[Pair]:
    """Return up to `per_sentence` pairs of each sentence of 5 to 40 words; a share `preserved` keeps the meaning."""
    rng, corpus = random.Random(seed), Corpus.of(sentences)
    pairs = []
    for text in corpus.sentences:
        for _ in range(per_sentence):
            breaking = rng.random() >= preserved
            harmless = rng.randint(0, 3) if breaking else rng.randint(1, 4)
            pair = next(filter(None, (edit_sentence(text, harmless, breaking, rng, corpus) for _ in range(5))), None)
            if pair is not None:
                pairs.append(pair)
    return pairs


# Synthetic speakers: share of utterances with an error; of such utterances, number of harmless edits and share whose
# meaning is lost. Some have many harmless errors, some few severe ones.
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
    """Return at most `utterances` pairs of each synthetic speaker; some have no error."""
    rng, corpus = random.Random(seed), Corpus.of(sentences)
    pairs = []
    for n in range(speakers):
        erroneous, harmless, breaking = SPEAKERS[n % len(SPEAKERS)]
        for text in rng.sample(corpus.sentences, min(utterances, len(corpus.sentences))):
            pair = Pair(text, text, True, "0")
            if rng.random() < erroneous:
                made = (edit_sentence(text, harmless, rng.random() < breaking, rng, corpus) for _ in range(5))
                pair = next(filter(None, made), pair)
            pairs.append(dataclasses.replace(pair, speaker=f"S{n + 1}"))
    return pairs
