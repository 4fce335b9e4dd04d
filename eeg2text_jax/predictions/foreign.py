"""Convert samples of foreign files, in other layouts than ours, to predictions; recognise conditions and modes."""

import dataclasses
import hashlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from etils import epath

from eeg2text_jax.data.clock import parse_time
from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.file import MODES, UNKNOWN, Prediction, Shared, characters_apart, row_key, sentence_key

EEG_NAMES = {"real_eeg": "eeg", "real": "eeg", "true_eeg": "eeg", "shuffled_eeg": "shuffled", "noise_eeg": "noise"}
CONTROLS = ("noise", "random", "random_noise", "gaussian_noise", "shuffled", "random_eeg", "zero", "zero_eeg", "zeros")
RECORDINGS = {"meg", "fmri", "ecog", "seeg", "ieeg", "fnirs", "nirs", "emg", "lfp"}  # signals other than EEG
MODE_FIELDS = ("mode", "forced", "decoding")  # fields that state whether a prediction is teacher-forced
FORCED = {"teacher_forced", "teacher_forcing", "with_teacher_forcing", "forced"}
FORCED |= {"tf", "with_tf", "w_tf", "w/_tf", "w/tf"}
FREE = {"free_running", "autoregressive", "ar", "generate", "generated", "no_tf", "without_tf", "w/o_tf"}
YES, NO = {"true", "1", "1.0", "yes", "y", "t"}, {"false", "0", "0.0", "no", "n", "f"}
MOST_CONDITIONS = 12  # a column with more distinct values is not read as conditions
# Value in a column that names the split of each row -> test, dev or train.
PARTS = {
    **dict.fromkeys(("test", "testing", "eval", "evaluation", "heldout", "held_out"), "test"),
    **dict.fromkeys(("dev", "val", "valid", "validation"), "dev"),
    **dict.fromkeys(("train", "training"), "train"),
}
MISSING = {"", "nan", "none", "null", "n/a", "na", UNKNOWN}  # notations of a missing value


@dataclasses.dataclass(frozen=True)
class ForeignRow:
    """One sample of a foreign file, a file in another layout than ours."""

    line: int  # number of the line, or of the row or item as `unit` says
    reference: str
    outputs: Mapping[tuple[str, str], str]  # (evaluation condition, mode) -> predicted text
    about: Mapping[str, str] = dataclasses.field(default_factory=dict)  # field, such as "subject" -> value
    unit: str = "line"
    read_as: tuple[str, ...] = ()  # notes on texts that were converted from lists


def complete(rows: Iterable[ForeignRow], path: epath.Path) -> list[Prediction]:
    """Return a prediction for each predicted text of each sample; missing values become "unknown", a missing seed 0.

    Raises UserError if a seed or mode is invalid, or a stated sample id occurs twice with one condition, seed and mode.
    """
    predictions, fed = [], []
    first_line: dict[tuple, int] = {}
    shared = Shared()
    known: dict[str, tuple[str, int]] = {}  # distinct reference -> sentence id, number of words
    for number, row in enumerate(rows, 1):
        reference = shared.text(row.reference)
        if reference not in known:
            digest = hashlib.sha256(sentence_key(reference).encode()).hexdigest()
            known[reference] = f"text-{digest[:12]}", len(characters_apart(reference).split())
        own_id, n_words = known[reference]
        for (condition, mode), text in row.outputs.items():
            subject, task = _stated(row, "subject", shared), _stated(row, "task", shared)
            timed = "onset" in row.about or "order" in row.about
            time = parse_time(row.about, f"{path}, {row.unit} {row.line}", default=f"{subject}/{task}") if timed else {}
            prediction = Prediction(
                sample_id=row.about.get("sample_id", f"row-{number}"),
                subject=subject,
                task=task,
                sentence_id=shared.text(row.about.get("sentence_id", own_id)),
                n_words=n_words,
                train_condition=shared.text(row.about.get("train_condition", UNKNOWN)),
                eval_condition=shared.text(row.about.get("eval_condition", condition)),
                seed=_seed(row, path),
                mode=_mode(row, mode, path),
                reference=reference,
                prediction=text,
                **time,
            )
            if "sample_id" in row.about:
                previous = first_line.setdefault((*row_key(prediction), _fed(row, condition)), row.line)
                if previous != row.line:
                    raise UserError(
                        f"{path}, {row.unit} {row.line}: sample {prediction.sample_id!r} is on {row.unit} {previous} "
                        "already; expected it once with these conditions, seed and mode; remove one."
                    )
            predictions.append(prediction)
            fed.append(_fed(row, condition))
    if (other := RECORDINGS & set(fed)) and "eeg" in fed:
        raise UserError(
            f"{path}: the column of conditions holds eeg and {', '.join(sorted(other))}, which is another recording "
            "and no control; give the rows of one recording, or name what was fed in a column eval_condition."
        )
    distinct = set(fed)
    if "" in distinct or "eeg" not in distinct or not 2 <= len(distinct) <= min(MOST_CONDITIONS, len(fed) // 2):
        return predictions
    return [dataclasses.replace(row, eval_condition=name) for row, name in zip(predictions, fed, strict=True)]


def _fed(row: ForeignRow, condition: str) -> str:
    """Return the condition in a column such as `input`; "" if the argument `condition` or `eval_condition` has one."""
    if condition != UNKNOWN or "eval_condition" in row.about:
        return ""
    return condition_name(row.about.get("condition", ""))


def condition_name(value: str) -> str:
    """Return our name of a condition, such as "eeg" for "Real EEG"; other values become lower case with `_`."""
    word = join_words(value)
    return EEG_NAMES.get(word, word)


def join_words(text: str) -> str:
    """Return a text in lower case with `_` for spaces and hyphens."""
    return "_".join(text.lower().replace("-", " ").split())


def fed_word(value: str) -> str:
    """Return the condition if a value is surely the name of EEG or a control, else ""."""
    word = condition_name(value) if len(value) < 20 else ""
    return word if word == "eeg" or word in CONTROLS else ""


def _stated(row: ForeignRow, name: str, shared: Shared) -> str:
    """Return the value of the row's field `name`, or "unknown" if it is missing."""
    value = row.about.get(name, UNKNOWN).strip()
    return UNKNOWN if value.lower() in MISSING else shared.text(value)


def _seed(row: ForeignRow, path: epath.Path) -> int:
    stated = row.about.get("seed", "0")
    if not (stated.isascii() and stated.isdigit() and len(stated) < 19):
        raise UserError(f"{path}, {row.unit} {row.line}: seed is {stated!r:.40}; expected a whole number.")
    return int(stated)


def _mode(row: ForeignRow, mode: str, path: epath.Path) -> str:
    """Return the mode that a row's fields or else `mode` state, or "unknown". Raises UserError for an unknown mode."""
    stated = mode_name(row.about.get("mode", mode)) or UNKNOWN
    if stated not in (*MODES, UNKNOWN):
        raise UserError(f"{path}, {row.unit} {row.line}: mode is {stated!r:.40}; expected one of {', '.join(MODES)}.")
    if stated == UNKNOWN and "decoding" in row.about:  # this field may name a search instead of a mode
        stated = mode_name(row.about["decoding"])
    if stated not in MODES and "forced" in row.about:
        forced = row.about["forced"].strip().lower()
        stated = "teacher_forced" if forced in YES else "free_running" if forced in NO else mode_name(forced)
    return stated if stated in MODES else UNKNOWN


def mode_name(text: str) -> str:
    """Return the mode that a text such as "with TF" means, or the text itself if it is no known name."""
    word = join_words(text)
    return "teacher_forced" if word in FORCED else "free_running" if word in FREE else text


class RowSummary:
    """An iterator over the rows of a file that collects their labels, conditions and notes as they are read."""

    def __init__(self, rows: Iterable[ForeignRow]):
        self._rows = rows
        self.groups: dict[str, dict[str, Counter]] = defaultdict(
            lambda: defaultdict(Counter)
        )  # column -> counts of labels
        self.fed: set[str] = set()  # conditions in the column of conditions
        self.seeds_stated = False
        self.read_as: Counter[str] = Counter()  # note on converted texts -> number of rows
        self.part = ""  # note on the rows that the column of splits left out; "" if none
        self.others: dict[str, Counter[str]] = defaultdict(Counter)  # unused column -> condition -> number of rows

    def __iter__(self) -> Iterator[ForeignRow]:
        for row in self._test_rows(iter(self._rows)):
            self.fed.add(condition_name(row.about.get("condition", "")))
            self.seeds_stated |= "seed" in row.about
            self.read_as.update(row.read_as)
            for name, value in row.about.items():
                if name.startswith("group "):
                    self.groups[name.removeprefix("group ")][sentence_key(row.reference)][value.strip()] += 1
                elif name.startswith("other "):
                    self.others[name.removeprefix("other ")][fed_word(value)] += 1
            yield row

    def _test_rows(self, rows: Iterator[ForeignRow]) -> Iterator[ForeignRow]:
        """Yield the rows of the test part, or of dev if none are of test; all rows without a column of splits."""
        first = next(rows, None)
        rows = itertools.chain([first] if first else [], rows)
        if first is None or "split" not in first.about:
            yield from rows
            return
        listed = [(row, PARTS.get(join_words(row.about["split"]), "")) for row in rows]
        counts = Counter(part for _, part in listed)
        kept = next((part for part in ("test", "dev") if counts[part]), "")
        if kept and counts[kept] < len(listed):
            others = ", ".join(f"{count} of {part or 'another'}" for part, count in counts.items() if part != kept)
            self.part = f"by the column of splits, only {counts[kept]} rows of {kept} are used; left out are {others}"
        elif counts["train"] == len(listed):
            self.part = "every row is of the training part by the column of splits: models may have memorized its texts"
        yield from (row for row, part in listed if part == kept or not kept)
