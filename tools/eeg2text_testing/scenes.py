"""Scenes to simulate decoders in: made-up sentences, readers, a language model; and rows of a predictions file."""

import dataclasses
import functools
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from eeg2text_jax.instrument.predictions.file import Prediction
from eeg2text_testing.made_up_text import content_words, sentences

SIZES = (60, 80, 104, 150)  # sentences of a set, by its seed
READERS = (4, 1, 9, 3, 6)
START, TRAINING = "<s>", 700


class Bigrams:
    def __init__(self, texts: Sequence[str]) -> None:
        self.after: dict[str, Counter] = defaultdict(Counter)
        self.words: Counter = Counter()
        for text in texts:
            words = text.split()
            self.words.update(words)
            for before, word in zip([START, *words], words, strict=False):
                self.after[before][word] += 1
        self._choices = {before: (list(found), list(found.values())) for before, found in self.after.items()}
        self._any = (list(self.words), list(self.words.values()))

    def draw(self, before: str, rng: random.Random) -> str:
        words, counts = self._choices.get(before, self._any)
        return rng.choices(words, counts)[0]

    def best(self, before: str) -> str:
        return self.after[before].most_common(1)[0][0] if before in self.after else self.words.most_common(1)[0][0]

    def babble(self, length: int, rng: random.Random, before: str = START) -> list[str]:
        words: list[str] = []
        for _ in range(length):
            before = self.draw(before, rng)
            words.append(before)
        return words


@dataclasses.dataclass(frozen=True)
class Row:
    """One reading: number of the sentence, its words, its genre, the reader; a name for the streams of its set."""

    sentence: int
    words: list[str]
    genre: str
    reader: int
    stream: str

    @property
    def text(self) -> str:
        return " ".join(self.words)


@dataclasses.dataclass(frozen=True)
class Scene:
    """Sentences, readers and training text that a set is made from. `joint` is put between words: none in Chinese."""

    sentences: list[str]
    genres: list[str]
    readers: int
    training: list[tuple[str, str]]
    tasks_known: bool
    seed: int
    joint: str = " "

    @functools.cached_property
    def model(self) -> Bigrams:
        return Bigrams([text for text, _ in self.training])

    @functools.cached_property
    def genre_models(self) -> dict[str, Bigrams]:
        genres = {genre for _, genre in self.training} | set(self.genres)
        return {g: Bigrams([t for t, own in self.training if own == g] or [g]) for g in genres}

    @functools.cached_property
    def training_words(self) -> list[set[str]]:
        return [set(content_words(text)) for text, _ in self.training]

    def rows(self, stream: str = "") -> list[Row]:
        texts = enumerate(zip(self.sentences, self.genres, strict=True))
        return [Row(i, text.split(), genre, r, stream) for i, (text, genre) in texts for r in range(self.readers)]

    def length(self, row: Row, rng: random.Random) -> int:
        """Return about as many words as the sentence has: a recording tells as much, with or without content."""
        return max(1, round(len(row.words) * rng.uniform(0.8, 1.25)))

    def babble(self, row: Row, rng: random.Random) -> list[str]:
        return self.model.babble(self.length(row, rng), rng)


@functools.lru_cache(maxsize=16)
def scene_of(text: str, seed: int, size: int | None = None, readers: int | None = None) -> Scene:
    """Return the scene of a seed. Every second seed has tasks that are known."""
    count = size or SIZES[seed % len(SIZES)]
    drawn = sentences(text, count + TRAINING, seed)
    if text == "chinese":  # a "word" is a character while texts are made
        drawn = [(" ".join(t), genre) for t, genre in drawn]
    test, training = drawn[:count], drawn[count:]
    joint = "" if text == "chinese" else " "
    texts, genres = [t for t, _ in test], [g for _, g in test]
    return Scene(texts, genres, readers or READERS[seed % len(READERS)], training, seed % 2 == 0, seed, joint)


Decoder = Callable[[Scene, random.Random, Row, float], str]


def predictions(scene: Scene, texts: Sequence[str], condition: str, mode: str = "free_running") -> list[Prediction]:
    made = []
    for row, text in zip(scene.rows(), texts, strict=True):
        sentence, task = f"sentence-{row.sentence:03}", row.genre if scene.tasks_known else ""
        sample, reference = f"{sentence}-{row.reader}", scene.joint.join(row.words)
        subject = f"reader-{row.reader}"
        ids = (sample, subject, task, sentence, len(row.words))
        made.append(Prediction(*ids, "eeg", condition, 0, mode, reference, text))
    return made


def decode(decoder: Decoder, scene: Scene, quality: float, name: str) -> list[str]:
    """Return a decoder's text for each row; each row has a random stream of its own."""
    rows = enumerate(scene.rows(name))
    return [decoder(scene, random.Random(f"{scene.seed} {name} {i}"), row, quality) for i, row in rows]


def babble(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    return " ".join(scene.babble(row, rng))


@dataclasses.dataclass(frozen=True)
class DecodedSet:
    """Rows under EEG and under controls, the scene that they were made from, the list that the decoder chose from."""

    kind: str
    eeg: list[Prediction]
    controls: dict[str, list[Prediction]]
    scene: Scene
    choices: Sequence[str] = ()
