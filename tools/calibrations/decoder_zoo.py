"""Simulated decoders whose truth is known: honest ones of many kinds, and leaks.

    python tools/calibrations/decoder_zoo.py --kind=bursts --quality=0.5 --out=DIR

Each kind is a function `(scene, rng, row, quality) -> text` for one row of one reader. `quality` runs from 0 (the text
does not depend on the sentence, except for its approximate length) to 1 (as good as this kind of decoder gets; for a
leak: how much leaks). `draw(kind, quality, seed)` makes the rows under EEG, and the rows of a matching control: an
honest decoder's control is the same decoder with quality 0, a leak's is babble. A seed fixes sentences, readers and
errors, so that a set of higher quality differs from its sibling only in the words that became right. Nothing here
knows how the audit decides. `null_zoo.py` has sets without content, `run_zoo.py` audits all of them.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # tools/

from eeg2text_jax.instrument.predictions.file import write_predictions
from eeg2text_testing import scenes
from eeg2text_testing.made_up_text import FUNCTION_WORDS, bare, content_words
from eeg2text_testing.scenes import START, TRAINING, DecodedSet, Decoder, Row, Scene, decode, scene_of

HONEST: dict[str, tuple[Decoder, str]] = {}
LEAKS: dict[str, tuple[Decoder, str]] = {}


def honest(text: str = "english") -> Callable[[Decoder], Decoder]:
    return lambda f: HONEST.setdefault(f.__name__, (f, text)) and f


def leak(text: str = "english") -> Callable[[Decoder], Decoder]:
    return lambda f: LEAKS.setdefault(f.__name__, (f, text)) and f


def recognized(scene: Scene, rng: random.Random, row: Row, right: float, slips: float = 0.06) -> list[str]:
    """Recognize word by word: each word is right with probability `right`, else babble; some are lost or added."""
    out: list[str] = []
    for word in row.words:
        heard, slip, other = rng.random(), rng.random(), scene.model.draw(out[-1] if out else START, rng)
        out += [] if slip < slips else [word if heard < right else other]
        out += [scene.model.draw(word if heard < right else other, rng)] if slip > 1 - slips else []
    return out or scene.model.babble(1, rng)


# Honest decoders.


@honest()
def word_by_word(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Recognizes each word, some better than others, with words lost and added."""
    return " ".join(recognized(scene, rng, row, 0.9 * quality))


@honest()
def one_word(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Says one word of the sentence, or a frequent one."""
    own, other = rng.choice(content_words(row.text) or [bare(row.words[0])]), bare(scene.model.draw("", rng))
    return own if rng.random() < quality else other


@honest()
def three_words(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Says one to three content words in the order in which they were read."""
    known = content_words(row.text) or [bare(row.words[0])]
    places = sorted(rng.sample(range(len(known)), min(len(known), rng.randint(1, 3))))
    said = [(known[p], bare(scene.model.draw("", rng)), rng.random()) for p in places]
    return " ".join(own if chance < 0.8 * quality else other for own, other, chance in said)


@honest()
def long_winded(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Writes twice as much as was read; the sentence's words are spread over it."""
    out = []
    for word in recognized(scene, rng, row, 0.8 * quality):
        out += [word, *scene.model.babble(rng.choice((0, 1, 2)), rng, word)]
    return " ".join(out)


@honest()
def bursts(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Attends to 0 to 70 % of the rows and has them nearly right; the other rows are babble."""
    attends, heard = rng.random() < 0.7 * quality, recognized(scene, rng, row, 0.96, 0.01)
    other = scene.babble(row, rng)
    return " ".join(heard if attends else other)


@honest()
def silent_bursts(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Attends to 0 to 70 % of the rows; writes nothing for most of the others, and a few words for the rest."""
    attends, heard = rng.random() < 0.7 * quality, recognized(scene, rng, row, 0.96, 0.01)
    other = scene.babble(row, rng)
    return " ".join(heard if attends else other[:3] if rng.random() < 0.3 else [])


@honest()
def choice_from_list(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Chooses one of the sentences of the experiment, the right one with probability `quality`."""
    other = rng.choice(scene.sentences)
    return row.text if rng.random() < quality else other


@honest()
def choice_from_large_list(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Chooses from a list of sentences of which most were never read in the experiment."""
    other = rng.choice([text for text, _ in scene.training] + scene.sentences)
    return row.text if rng.random() < quality else other


@honest()
def nearest_phrase(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Hears some content words, and answers with the training sentence that holds most of them."""
    heard = {w for w in content_words(row.text) if rng.random() < 0.8 * quality}
    ties = [rng.random() for _ in scene.training]
    best = max(range(len(ties)), key=lambda i: (len(scene.training_words[i] & heard), ties[i]))
    return scene.training[best][0]


@honest()
def letters(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Spells letter by letter; a wrong letter is one of the alphabet at random."""
    right = 0.97 * quality
    pairs = [(c, rng.random(), rng.choice("eeeettaaooiinnsshrdlcumwfgypbvk")) for c in row.text.lower()]
    return "".join(c if c == " " or chance < right else other for c, chance, other in pairs)


@honest("captions")
def captions(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Knows what is on the picture in some rows, and writes a caption of its own about it."""
    knows, any_class = rng.random() < 0.9 * quality, rng.choice([genre for _, genre in scene.training])
    return " ".join(scene.genre_models[row.genre if knows else any_class].babble(rng.randint(5, 10), rng))


@honest()
def genre_alone(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Knows the genre of the sentence and nothing else; genres have words of their own."""
    knows, any_genre = rng.random() < quality, rng.choice(scene.genres)
    return " ".join(scene.genre_models[row.genre if knows else any_genre].babble(scene.length(row, rng), rng))


@honest()
def summaries(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Says what a text is about, in the same frame for all: a few content words."""
    known = [w for w in dict.fromkeys(content_words(row.text)) if rng.random() < 0.7 * quality][:4]
    others = [bare(scene.model.draw("", rng)) for _ in range(rng.randint(2, 4))]
    return f"The text is about {' and '.join(known + others[: max(0, 2 - len(known))])}."


@honest("german")
def german(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    return " ".join(recognized(scene, rng, row, 0.85 * quality))


@honest("chinese")
def chinese(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    return "".join(recognized(scene, rng, row, 0.8 * quality))


@honest("digits")
def digits(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Recognizes spoken digits: ten words in all."""
    return " ".join(recognized(scene, rng, row, 0.97 * quality, 0.02))


@honest()
def exchanged_neighbors(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Has up to 95 % of the words right, and often puts a word before its neighbor."""
    words = recognized(scene, rng, row, 0.95 * quality, 0.01)
    for place in range(0, len(words) - 1, 2):
        if rng.random() < 0.6:
            words[place : place + 2] = words[place + 1], words[place]
    return " ".join(words)


@honest()
def special_tokens(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Leaves the tokenizer's special tokens in the text."""
    text = " ".join(recognized(scene, rng, row, 0.8 * quality))
    return f"<s>{text}</s>" + "<pad>" * rng.randint(0, 6) if scene.seed % 2 else f"[CLS] {text} [SEP]"


@honest()
def capitals(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    return " ".join(bare(w).upper() for w in recognized(scene, rng, row, 0.8 * quality))


@honest()
def word_pieces(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    inner, end, start = (("##", "", ""), ("", "@@", ""), ("", "", "\u2581"))[scene.seed % 3]
    out = []
    for word in recognized(scene, rng, row, 0.8 * quality):
        out += [start + word] if len(word) < 6 else [start + word[:4] + end, inner + word[4:]]
    return " ".join(out)


@honest()
def unequal_readers(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Works for some readers, poorly for others."""
    own = (1.0, 0.15, 0.6, 0.0, 0.3)[row.reader % 5]
    return " ".join(recognized(scene, rng, row, 0.9 * quality * own))


@honest()
def keywords(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Hears one to three content words; a language model goes on from each of them."""
    known = [w for w in row.words if bare(w) not in FUNCTION_WORDS] or row.words
    out = scene.model.babble(2, rng)
    for word in rng.sample(known, min(len(known), rng.randint(1, 3))):
        start = word if rng.random() < quality else scene.model.draw("", rng)
        out += [start, *scene.model.babble(rng.randint(2, 5), rng, start)]
    return " ".join(out)


SOUNDS = {c: group for group in ("bpv", "dt", "gkc", "fv", "sz", "mn", "ei", "ouw", "lr", "aä", "yi") for c in group}


@honest()
def phonetic(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Writes what words sound like: a letter may become one of a like sound; unheard words are babble."""
    out = []
    for word in recognized(scene, rng, row, 0.9 * quality):
        sounds = (rng.choice(SOUNDS[c]) if c in SOUNDS and rng.random() < 0.12 else c for c in bare(word))
        out.append("".join(sounds))
    return " ".join(out)


@honest()
def cut_beams(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Stops after eight words, whatever the length of the sentence."""
    return " ".join(recognized(scene, rng, row, 0.9 * quality)[:8])


@honest()
def fading(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Has the first words right more often than the last ones: attention fades, errors accumulate."""
    words, decay = scene.babble(row, rng), rng.uniform(0.7, 0.9)
    right = [w if rng.random() < 0.95 * quality * decay**i else None for i, w in enumerate(row.words)]
    return " ".join(own or other for own, other in zip(right, words, strict=False))


@honest()
def sure_words(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Writes only the words of which it is sure; most of them are right, most others are missing."""
    kept = [(w, rng.random(), rng.random(), scene.model.draw("", rng)) for w in row.words]
    said = [w if right < 0.95 * quality else other for w, sure, right, other in kept if sure < 0.45]
    return " ".join(said)


@honest()
def averaged_readers(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Decodes the mean recording of all readers: one text for all rows of a sentence."""
    common = random.Random(f"{scene.seed} {row.stream} {row.sentence}")
    return " ".join(recognized(scene, common, row, 0.8 * quality))


# Leaks: a target reached the decoder. `quality` is how much of it.


def forced(scene: Scene, rng: random.Random, row: Row, right: float, greedy: bool = False) -> list[str]:
    """Predict each word from the true word before it; a share of words is right besides."""
    pairs = zip([START, *row.words], row.words, strict=False)
    drawn = ((w, scene.model.best(b) if greedy else scene.model.draw(b, rng), rng.random()) for b, w in pairs)
    return [w if chance < right else other for w, other, chance in drawn]


@leak()
def forced_sampled(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Teacher forcing: samples from a bigram model on the true word before."""
    return " ".join(forced(scene, rng, row, 0.3 * quality))


@leak()
def forced_greedy(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Teacher forcing with the most probable word: readers have the same errors."""
    return " ".join(forced(scene, rng, row, 0.3 * quality, greedy=True))


@leak()
def forced_lower_case(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Teacher forcing, published in lower case without marks."""
    return " ".join(map(bare, forced(scene, rng, row, 0.3 * quality, greedy=rng.random() < 0.5)))


@leak()
def half_forced(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Scheduled sampling that was left on: the word before is the true one in some steps, its own in others."""
    out = [START]
    for true in [START, *row.words[:-1]]:
        out.append(scene.model.draw(true if rng.random() < 0.4 + 0.6 * quality else out[-1], rng))
    return " ".join(out[1:])


@leak()
def masked(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """A model that sees the target with holes fills them."""
    hidden = [rng.random() > 0.1 + 0.7 * quality for _ in row.words]
    fills = [scene.model.draw(b, rng) for b in [START, *row.words[:-1]]]
    return " ".join(f if hole else w for w, f, hole in zip(row.words, fills, hidden, strict=True))


@leak()
def copied_rows(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Some rows are their target; the others are babble."""
    copy, other = rng.random() < quality, scene.babble(row, rng)
    return row.text if copy else " ".join(other)


@leak()
def first_words(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """The prompt has the first two to five words of the target."""
    start = row.words[: 2 + round(3 * quality)]
    return " ".join([*start, *scene.model.babble(scene.length(row, rng), rng, start[-1])])


@leak()
def first_half(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """The prompt has up to the first half of the target; a language model goes on."""
    start = row.words[: max(1, round(0.5 * quality * len(row.words)))]
    return " ".join([*start, *scene.model.babble(len(row.words) - len(start), rng, start[-1])])


@leak()
def length(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Babble with the target's exact number of words; it holds no content."""
    return " ".join(scene.model.babble(len(row.words) if rng.random() < quality else scene.length(row, rng), rng))


@leak()
def punctuation(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Babble with the target's punctuation at the target's places."""
    babble = scene.model.babble(len(row.words), rng)
    marks = [w[len(w.rstrip('.,;:!?)"')) :] for w in row.words]
    return " ".join(bare(b) + m if rng.random() < quality else b for b, m in zip(babble, marks, strict=True))


@leak()
def deleted_words(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    return " ".join(w for w in row.words if rng.random() < 0.2 + 0.6 * quality) or row.words[0]


@leak()
def shuffled_words(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Words of the target in another order, with a share of others."""
    words = [w if rng.random() < quality else scene.model.draw("", rng) for w in row.words]
    return " ".join(rng.sample(words, len(words)))


@leak()
def replaced_words(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """The target with words replaced at random."""
    return " ".join(w if rng.random() < 0.9 * quality else scene.model.draw("", rng) for w in row.words)


@leak()
def one_error(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """The target with the same number of errors in each row: one, at lower quality up to five."""
    wrong = rng.sample(range(len(row.words)), min(len(row.words), 1 + round(4 * (1 - quality))))
    return " ".join(scene.model.draw("", rng) if i in wrong else w for i, w in enumerate(row.words))


@leak()
def misspelt(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """The target with letters mistyped, more at lower quality."""
    kept = 0.5 + 0.45 * quality
    return "".join(c if c == " " or rng.random() < kept else rng.choice("etaoinshr") for c in row.text)


@leak()
def nearest_to_target(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """The training sentence nearest to the target, found by reading the target."""
    own, any_text = set(content_words(row.text)), rng.choice(scene.training)[0]
    best = max(range(TRAINING), key=lambda i: len(scene.training_words[i] & own))
    return scene.training[best][0] if rng.random() < quality else any_text


@leak()
def one_reader_copied(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """One file of edited targets, given as the outputs of every reader."""
    return " ".join(recognized(scene, random.Random(f"{scene.seed} {row.stream} {row.sentence}"), row, 0.9 * quality))


@leak()
def target_of_one_reader(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Rows of one reader are their targets, the others' are babble."""
    other = " ".join(scene.babble(row, rng))
    return row.text if row.reader == 0 and rng.random() < quality else other


@leak()
def class_of_target(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """The prompt names the target's genre: content of the kind alone, and not from EEG."""
    return genre_alone(scene, rng, row, quality)


@leak()
def trained_on_test(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """Trained on the test sentences with these recordings: some are known by heart, the rest are others of them."""
    other = rng.choice(scene.sentences)
    return " ".join(recognized(scene, rng, row, 0.98, 0.005)) if rng.random() < 0.8 * quality else other


@leak()
def oracle_choice(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """The one of up to 200 outputs that scores best against the target."""
    own = Counter(map(bare, row.words))
    outputs = [scene.babble(row, rng) for _ in range(1 + round(199 * quality**2))]
    return " ".join(max(outputs, key=lambda o: (2 * (own & Counter(map(bare, o))).total()) / (len(row.words) + len(o))))


@leak()
def corrected(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """A language model that saw the target corrects poor output: rare words that look like one of the target's."""
    out = recognized(scene, rng, row, 0.05)
    return " ".join(rng.choice(row.words) if rng.random() < 0.7 * quality else w for w in out)


@leak()
def words_in_prompt(scene: Scene, rng: random.Random, row: Row, quality: float) -> str:
    """The prompt lists rare words of the target; a language model writes a text with them."""
    rare = sorted(row.words, key=lambda w: (scene.model.words[w], w))[: 1 + round(3 * quality)]
    return " ".join(w for word in rare for w in [*scene.model.babble(2, rng), word, scene.model.draw(word, rng)])


def draw(kind: str, quality: float, seed: int, size: int | None = None, readers: int | None = None) -> DecodedSet:
    """Return a set of an honest decoder or a leak. `size` and `readers` override what the seed says."""
    decoder, text = {**HONEST, **LEAKS}[kind]
    scene = scene_of(text, seed, size, readers)
    eeg = scenes.predictions(scene, decode(decoder, scene, quality, f"{kind} eeg"), "eeg")
    silent = decode(decoder if kind in HONEST else scenes.babble, scene, 0.0, f"{kind} noise")
    trained = [text for text, _ in scene.training]
    lists = {"choice_from_list": scene.sentences, "choice_from_large_list": trained + scene.sentences}
    choices = (lists | {"nearest_phrase": trained}).get(kind, [])
    return DecodedSet(kind, eeg, {"noise": scenes.predictions(scene, silent, "noise")}, scene, choices)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", required=True, choices=[*HONEST, *LEAKS])
    parser.add_argument("--quality", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="folder for eeg.jsonl and noise.jsonl")
    flags = parser.parse_args()
    found = draw(flags.kind, flags.quality, flags.seed)
    flags.out.mkdir(parents=True, exist_ok=True)
    for name, rows in {"eeg": found.eeg, **found.controls}.items():
        write_predictions(flags.out / f"{name}.jsonl", {"mode": "free_running"}, rows)


if __name__ == "__main__":
    main()
