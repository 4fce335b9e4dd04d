"""Notes on a file that was read: possible faults, one sentence each."""

import re
from collections import Counter

from eeg2text_jax.predictions.file import Prediction, PredictionSet
from eeg2text_jax.predictions.foreign import UNKNOWN
from eeg2text_jax.predictions.script import is_spaceless

FEW = 10  # distinct texts below which nothing is said of how often each recurs
SPECIAL = re.compile(r"</?s>|<pad>|<unk>|<\|endoftext\|>|\[(?:PAD|SEP|CLS|UNK)\]")
CURLED = re.compile("[\u2018\u2019\u201c\u201d]")
STRAIGHT = re.compile("['\"]")


def doubts(read: PredictionSet) -> list[str]:
    """All that may be wrong with the file."""
    rows = read.predictions
    found = [*empty_halves(read), *doubled(read), *unparted(read), *exchanged(read), *quotes(rows)]
    return [*found, *spaceless(rows)]


def empty_halves(read: PredictionSet) -> list[str]:
    """Note cells and modes in which every prediction is empty, if others are not."""
    filled: dict[tuple[str, str, str], int] = {}
    for p in read.predictions:
        cell = (p.train_condition, p.eval_condition, p.mode)
        filled[cell] = filled.get(cell, 0) + bool(p.prediction.strip())
    if not any(filled.values()):
        return []
    return [
        f"every {mode} prediction under {train} → {evaluation} is empty; only the rest can be scored and judged"
        for (train, evaluation, mode), count in filled.items()
        if not count
    ]


def doubled(read: PredictionSet) -> list[str]:
    """Note a file whose second half repeats the first, as if it was appended to itself."""
    rows = [(p.reference, p.prediction, p.mode, p.eval_condition, p.subject) for p in read.predictions]
    half = len(rows) // 2
    if half < 10 or len(rows) % 2 or rows[:half] != rows[half:] or len(set(rows[:half])) < 2:
        return []
    return [f"the second half of the file repeats its first {half} rows; it may have been written twice"]


def repetitions(read: PredictionSet) -> int:
    """Count rows that equal an earlier one in everything but the sample id, if subjects are known."""
    rows = [
        hash((p.subject, p.task, p.sentence_id, p.train_condition, p.eval_condition, p.seed, p.mode, p.prediction))
        for p in read.predictions
        if p.subject != UNKNOWN
    ]
    return len(rows) - len(set(rows))


def unparted(read: PredictionSet) -> list[str]:
    """Note rows of one subject and sentence without a column that tells what they were decoded from."""
    counts = Counter(
        (p.subject, p.task, p.sentence_id, p.train_condition, p.seed, p.mode)
        for p in read.predictions
        if p.eval_condition == UNKNOWN != p.subject
    )
    repeated = sum(count for count in counts.values() if count > 1)
    if not repeated:
        return []
    return [
        f"{repeated} rows share their subject and reference with another row, and no known column tells what each was "
        "decoded from: they count as from EEG, all of them; if some are of a control, say so in a column eval_condition"
    ]


def exchanged(read: PredictionSet) -> list[str]:
    """Note columns that look exchanged: predictions recur like read sentences, or references have special tokens."""
    rows = read.predictions
    references, predictions = (Counter(getattr(p, side) for p in rows) for side in ("reference", "prediction"))
    usual = sorted(predictions.values())[len(predictions) // 2]
    equally = sum(abs(count - usual) <= 0.25 * usual for count in predictions.values())
    recur = usual > 1 and equally >= 0.8 * len(predictions) and len(references) > 0.9 * len(rows)
    marked = [sum(bool(SPECIAL.search(text)) for text in side) / len(side) for side in (references, predictions)]
    if len(predictions) >= FEW and recur:
        reason = f"{len(predictions)} predictions recur about {usual} times each and the references hardly ever"
    elif marked[0] >= 0.05 and not marked[1]:
        reason = f"{marked[0]:.0%} of the references hold special tokens, and no prediction does"
    else:
        return []
    beside = read.layout.startswith(("P (", "K ("))
    cure = "exchange the two files" if beside else "name them with --columns=REFERENCE,PREDICTION"
    return [f"are reference and prediction exchanged? {reason}; if so, {cure}"]


def quotes(rows: list[Prediction]) -> list[str]:
    """Note curly quotes on one side and straight ones on the other, which no metric treats as equal."""
    curled, straight = (
        [sum(bool(kind.search(getattr(p, side))) for p in rows) for side in ("reference", "prediction")]
        for kind in (CURLED, STRAIGHT)
    )
    for mine, (side, other) in enumerate((("references", "predictions"), ("predictions", "references"))):
        if curled[mine] and not curled[1 - mine] and straight[1 - mine]:
            return [
                f"{curled[mine]} {side} have curly quotes or apostrophes and the {other} straight ones: a word with "
                "one counts as wrong; write both alike"
            ]
    return []


def spaceless(rows: list[Prediction]) -> list[str]:
    """Note scripts whose characters count as words, and texts without spaces."""
    texts = {p.reference for p in rows}
    if (found := sum(map(is_spaceless, texts))) and 2 * found >= len(texts):
        return ["the references are in a script without spaces; each Han or kana character counts as a word"]
    long = sum(len(text) >= 12 and len(text.split()) == 1 for text in texts)
    if len(texts) >= FEW and 2 * long >= len(texts):
        return [
            f"{long} of {len(texts)} references have no space: each counts as one word, and is right or wrong whole"
        ]
    return []
