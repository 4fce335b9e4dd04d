"""Find possible faults of a predictions file and describe each in one sentence for the user."""

import re
from collections import Counter

from eeg2text_jax.predictions.file import HAN, PredictionSet
from eeg2text_jax.predictions.foreign import UNKNOWN

FEW = 10  # with fewer distinct texts, their frequencies and their lack of spaces are not judged
SPECIAL = re.compile(r"</?s>|<pad>|<unk>|<\|endoftext\|>|\[(?:PAD|SEP|CLS|UNK)\]")
CURLY = re.compile("[\u2018\u2019\u201c\u201d]")
STRAIGHT = re.compile("['\"]")
HAN_OR_KANA = re.compile(f"[{HAN}\u3005-\u3007\u3040-\u30ff\u3105-\u312f]")  # letters only, with bopomofo


def possible_faults(read: PredictionSet) -> list[str]:
    """Return a sentence for each possible fault of a file."""
    found = [*empty_halves(read), *repeated_half(read), *unexplained_repeats(read), *exchanged_columns(read)]
    return [*found, *unequal_quotes(read), *scripts_without_spaces(read)]


def empty_halves(read: PredictionSet) -> list[str]:
    """Return notes on conditions and modes whose predictions are all empty; no note if all predictions are empty."""
    cells = {(p.train_condition, p.eval_condition, p.mode): False for p in read.predictions}
    cells |= {(p.train_condition, p.eval_condition, p.mode): True for p in read.predictions if p.prediction.strip()}
    return [
        f"every {mode} prediction under {train} → {evaluation} is empty; only the rest can be scored and judged"
        for (train, evaluation, mode), filled in cells.items()
        if not filled and any(cells.values())
    ]


def repeated_half(read: PredictionSet) -> list[str]:
    """Return a note if the second half of the rows repeats the first, as if the file was appended to itself."""
    rows = [(p.reference, p.prediction, p.mode, p.eval_condition, p.subject) for p in read.predictions]
    half = len(rows) // 2
    if half < 10 or len(rows) % 2 or rows[:half] != rows[half:] or len(set(rows[:half])) < 2:
        return []
    return [f"the second half of the file repeats its first {half} rows; it may have been written twice"]


def repetitions(read: PredictionSet) -> int:
    """Return how many rows with a known subject equal an earlier row in everything but the sample id."""
    rows = [
        hash((p.subject, p.task, p.sentence_id, p.train_condition, p.eval_condition, p.seed, p.mode, p.prediction))
        for p in read.predictions
        if p.subject != UNKNOWN
    ]
    return len(rows) - len(set(rows))


def unexplained_repeats(read: PredictionSet) -> list[str]:
    """Return a note if a subject has several rows of a sentence and no column states the encoder's input."""
    counts = Counter(
        (p.subject, p.task, p.sentence_id, p.train_condition, p.seed, p.mode)
        for p in read.predictions
        if p.eval_condition == UNKNOWN != p.subject
    )
    repeated = sum(count for count in counts.values() if count > 1)
    if not repeated:
        return []
    return [
        f"{repeated} rows share their subject and reference with another row, and no known column names the encoder's "
        "input: all of them count as decoded from EEG; if some are of a control, say so in a column eval_condition"
    ]


def exchanged_columns(read: PredictionSet) -> list[str]:
    """Return a note if reference and prediction seem exchanged, by repeated predictions or by special tokens."""
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


def unequal_quotes(read: PredictionSet) -> list[str]:
    """Return a note if one column has curly quotes and the other straight ones, which metrics treat as different."""
    curly, straight = (
        [sum(bool(kind.search(getattr(p, side))) for p in read.predictions) for side in ("reference", "prediction")]
        for kind in (CURLY, STRAIGHT)
    )
    for mine, (side, other) in enumerate((("references", "predictions"), ("predictions", "references"))):
        if curly[mine] and not curly[1 - mine] and straight[1 - mine]:
            return [
                f"{curly[mine]} {side} have curly quotes or apostrophes and the {other} straight ones: a word with "
                "such a mark counts as wrong; use the same marks in both"
            ]
    return []


def is_spaceless(text: str) -> bool:
    """Return whether half of the letters of a text are Han or kana, which are written without spaces."""
    return not text.isascii() and 2 * len(HAN_OR_KANA.findall(text)) >= max(1, sum(map(str.isalpha, text)))


def scripts_without_spaces(read: PredictionSet) -> list[str]:
    """Return a note if half of the references are in Han or kana (characters count as words), or have no spaces."""
    texts = {p.reference for p in read.predictions}
    if (found := sum(map(is_spaceless, texts))) and 2 * found >= len(texts):
        return ["the references are in a script without spaces; each Han or kana character counts as a word"]
    long = sum(len(text) >= 12 and len(text.split()) == 1 for text in texts)
    if len(texts) >= FEW and 2 * long >= len(texts):
        return [f"{long} of {len(texts)} references have no space: each counts as one word, right or wrong as a whole"]
    return []
