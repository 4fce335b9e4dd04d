"""Simulated prediction sets without content: what differs is style, length, kind of sentence, or the layout of rows.

Each kind is a function `(scene, rng, condition) -> texts`, one text for each row of the scene, or None where a reader
did not read the sentence. `condition` is `eeg` or `noise`. `draw_null(kind, seed)` makes a set. No content of the
sentence may be claimed in more sets than the audit's error rate; `GENRES_ALONE` hold content of a kind that the file
does not name, a genre or a template, which must not be claimed as content of the sentence. `run_zoo.py` audits them.
"""

import dataclasses
import functools
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # tools/

from decoder_zoo import recognized

from eeg2text_testing.scenes import Bigrams, DecodedSet, Row, Scene, predictions, scene_of

Texts = list[str | None]
Null = Callable[[Scene, random.Random, str], Texts]


@dataclasses.dataclass(frozen=True)
class Layout:
    """What a kind of null needs of its scene; None: as the seed says."""

    text: str = "english"
    size: int | None = None
    readers: int | None = None
    tasks_known: bool | None = None
    templates: bool = True  # without them, sentences are babble of their genre

    def scene(self, seed: int) -> Scene:
        scene = scene_of(self.text, seed, self.size, self.readers)
        if self.tasks_known is not None:
            scene = dataclasses.replace(scene, tasks_known=self.tasks_known)
        return scene if self.templates else without_templates(scene)


NULLS: dict[str, tuple[Null, Layout]] = {}
GENRES_ALONE = ("two_genres", "three_genres", "templates_of_the_length")


def null(**layout: str | int | bool) -> Callable[[Null], Null]:
    return lambda f: NULLS.setdefault(f.__name__, (f, Layout(**layout))) and f


def without_templates(scene: Scene) -> Scene:
    """Replace every sentence by babble of its genre, so that sentences of one length share no template."""
    rng, models = random.Random(f"{scene.seed} without templates"), scene.genre_models

    def drawn(text: str, genre: str) -> str:
        return " ".join(models[genre].babble(len(text.split()), rng))

    texts = [drawn(text, genre) for text, genre in zip(scene.sentences, scene.genres, strict=True)]
    training = [(drawn(text, genre), genre) for text, genre in scene.training]
    return dataclasses.replace(scene, sentences=texts, training=training)


def said(scene: Scene, text: Callable[[Row], Sequence[str] | None]) -> Texts:
    words = map(text, scene.rows())
    return [None if w is None else " ".join(w) for w in words]


@null()
def babble(scene: Scene, rng: random.Random, condition: str) -> Texts:
    return said(scene, lambda row: scene.babble(row, rng))


@null()
def exact_length(scene: Scene, rng: random.Random, condition: str) -> Texts:
    """Babble with the reference's exact number of words under EEG alone."""
    lengths = {"eeg": lambda row: len(row.words), "noise": lambda row: scene.length(row, rng)}
    return said(scene, lambda row: scene.model.babble(lengths[condition](row), rng))


@null()
def another_style(scene: Scene, rng: random.Random, condition: str) -> Texts:
    """Babble of the language of the readings under EEG, random words under noise."""
    if condition == "eeg":
        return babble(scene, rng, condition)
    return said(scene, lambda row: [scene.model.draw("", rng) for _ in range(scene.length(row, rng))])


def _by_genre(scene: Scene, rng: random.Random, condition: str) -> Texts:
    """Sentences of some genres have three times as many rows; under EEG, all babble is of these genres' style."""
    often = sorted(set(scene.genres))[::2]
    texts = [text for text, genre in scene.training if genre in often or condition == "noise"]
    model = Bigrams(texts)

    def words(row: Row) -> list[str] | None:
        reads = row.genre in often or row.reader < scene.readers // 3
        return model.babble(scene.length(row, rng), rng) if reads else None

    return said(scene, words)


@null()
def one_sentence(scene: Scene, rng: random.Random, condition: str) -> Texts:
    """One sentence for all rows, another under noise."""
    text = rng.choice(scene.training)[0].split()
    return said(scene, lambda row: text)


@null()
def frequent_words(scene: Scene, rng: random.Random, condition: str) -> Texts:
    """The most frequent words, at random, as many as were read; noise has babble."""
    top = [word for word, _ in scene.model.words.most_common(12)]
    frequent = condition == "eeg"
    return said(scene, lambda row: rng.choices(top, k=len(row.words)) if frequent else scene.babble(row, rng))


def _others(scene: Scene, rng: random.Random, condition: str, off: int) -> Texts:
    """Decode sentences that nobody read, each about as long as the sentence that was read."""
    if condition == "noise":
        return babble(scene, rng, condition)
    texts = rng.sample([text.split() for text, _ in scene.training], len(scene.training))
    lengths = [len(text.split()) + rng.randint(-off, off) for text in scene.sentences]
    others = [min(texts, key=lambda words: abs(len(words) - length)) for length in lengths]
    return said(scene, lambda row: recognized(scene, rng, dataclasses.replace(row, words=others[row.sentence]), 0.6))


def _own_genre(scene: Scene, rng: random.Random, condition: str) -> Texts:
    """Babble of the own genre under EEG, of any genre under noise."""
    models, knows = scene.genre_models, condition == "eeg"
    return said(scene, lambda row: (models[row.genre] if knows else scene.model).babble(scene.length(row, rng), rng))


@null()
def collapsed_control(scene: Scene, rng: random.Random, condition: str) -> Texts:
    return (babble if condition == "eeg" else one_sentence)(scene, rng, condition)


@null()
def collapsed_eeg(scene: Scene, rng: random.Random, condition: str) -> Texts:
    return (one_sentence if condition == "eeg" else babble)(scene, rng, condition)


@null(size=60, readers=18)
def eighteen_readers(scene: Scene, rng: random.Random, condition: str) -> Texts:
    """Babble in a style of each reader's own, the same under EEG and noise."""
    styles = [Bigrams([text for text, _ in scene.training[r :: scene.readers]]) for r in range(scene.readers)]
    return said(scene, lambda row: styles[row.reader].babble(scene.length(row, rng), rng))


@null(readers=9)
def copies_across_readers(scene: Scene, rng: random.Random, condition: str) -> Texts:
    texts = [scene.model.babble(len(text.split()), rng) for text in scene.sentences]
    return said(scene, lambda row: texts[row.sentence])


@null(size=104, readers=6, tasks_known=False)
def readers_with_own_lists(scene: Scene, rng: random.Random, condition: str) -> Texts:
    """Each reader reads sentences of one genre; EEG outputs have the reader's style, and with it the genre's."""
    genres = sorted(set(scene.genres))
    model = {"eeg": lambda row: scene.genre_models[row.genre], "noise": lambda row: scene.model}[condition]

    def words(row: Row) -> list[str] | None:
        reads = genres.index(row.genre) == row.reader
        return model(row).babble(scene.length(row, rng), rng) if reads else None

    return said(scene, words)


@null(size=60, readers=60)
def half_of_all_rows(scene: Scene, rng: random.Random, condition: str) -> Texts:
    """One sentence has half of all rows; each other sentence has one."""
    own = [random.Random(f"{scene.seed} {i}").randrange(4) for i in range(len(scene.sentences))]
    return said(scene, lambda r: scene.babble(r, rng) if r.sentence == 0 or r.reader == own[r.sentence] else None)


of_length, near_length = functools.partial(_others, off=0), functools.partial(_others, off=3)
NULLS |= {
    # The number of rows goes with the task, which is in the file or is not.
    "rows_by_known_task": (_by_genre, Layout(readers=9, tasks_known=True)),
    "rows_by_unknown_task": (_by_genre, Layout(readers=9, tasks_known=False)),
    # A good decoder's outputs for other sentences of exactly the same length, and of one within three words.
    "others_of_the_length": (of_length, Layout(templates=False)),
    "others_of_similar_length": (near_length, Layout(templates=False)),
    "templates_of_the_length": (of_length, Layout()),  # length tells the template of a sentence
    # EEG tells the genre and nothing else: of two or three that the file does not name, of six that it names as tasks.
    "two_genres": (_own_genre, Layout("english-2", tasks_known=False)),
    "three_genres": (_own_genre, Layout("english-3", tasks_known=False)),
    "known_genres": (_own_genre, Layout(tasks_known=True)),
    "thirty_sentences": (babble, Layout(size=30, readers=4)),  # as few as are judged at all
}


def draw_null(kind: str, seed: int) -> DecodedSet:
    made, layout = NULLS[kind]
    scene = layout.scene(seed)
    rows = {}
    for condition in ("eeg", "noise"):
        texts = made(scene, random.Random(f"{seed} {kind} {condition}"), condition)
        all_rows = predictions(scene, [text or "" for text in texts], condition)
        rows[condition] = [row for row, text in zip(all_rows, texts, strict=True) if text is not None]
    return DecodedSet(kind, rows.pop("eeg"), rows, scene)
