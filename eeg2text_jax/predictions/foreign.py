"""Samples in other layouts than ours as predictions; what their columns say of condition, mode and split."""

import dataclasses
import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

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
class Samples:
    """The samples of a file, column by column; `numbers` has the number of each sample's `unit` in the file."""

    path: epath.Path
    references: Sequence[str]
    outputs: Mapping[tuple[str, str], Sequence[str]]  # (evaluation condition, mode) -> predicted texts
    about: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)  # field, such as "subject" -> values
    numbers: Sequence[int] = ()
    unit: str = "line"

    def where(self, row: int) -> str:
        return f"{self.path}, {self.unit} {self.numbers[row] if self.numbers else row + 1}"

    def only(self, rows: Sequence[int]) -> "Samples":
        """Return some of the samples."""
        outputs = {key: [texts[i] for i in rows] for key, texts in self.outputs.items()}
        about = {name: [values[i] for i in rows] for name, values in self.about.items()}
        numbers = [self.numbers[i] if self.numbers else i + 1 for i in rows]
        return Samples(self.path, [self.references[i] for i in rows], outputs, about, numbers, self.unit)

    def groups(self) -> dict[str, dict[str, Counter]]:
        """Return column of labels -> `sentence_key` of a reference -> number of its samples with each label."""
        found: dict[str, dict[str, Counter]] = {}
        for name in (name for name in self.about if name.startswith("group ")):
            counts = found.setdefault(name.removeprefix("group "), defaultdict(Counter))
            for reference, label in zip(self.references, self.about[name], strict=True):
                counts[sentence_key(reference)][label.strip()] += 1
        return found

    def fed(self) -> list[str]:
        """Return what a column such as `input` says that the encoder was fed; [] where other columns say it."""
        named = "eval_condition" in self.about or any(condition != UNKNOWN for condition, _ in self.outputs)
        return [] if named else [*map(condition_name, self.about.get("condition", ()))]

    def conditions(self) -> list[str]:
        """Return the values of `fed` if they are a few conditions, EEG among them; else []."""
        fed = self.fed()
        few = 2 <= len({*fed}) <= min(MOST_CONDITIONS, len(fed) * len(self.outputs) // 2)
        return fed if few and "eeg" in fed and "" not in fed else []


def test_part(samples: Samples) -> tuple[Samples, str]:
    """Return the samples of the test part (dev if there is none; all without a column of splits), and a note."""
    parts = [PARTS.get(join_words(value), "") for value in samples.about.get("split", ())]
    counts = Counter(parts)
    kept = next((part for part in ("test", "dev") if counts[part]), "")
    if kept and counts[kept] < len(parts):
        others = ", ".join(f"{count} of {part or 'another'}" for part, count in counts.items() if part != kept)
        note = f"by the column of splits, only {counts[kept]} rows of {kept} are used; left out are {others}"
        return samples.only([i for i, part in enumerate(parts) if part == kept]), note
    if parts and counts["train"] == len(parts):
        note = "every row is of the training part by the column of splits: models may have memorized its texts"
        return samples, note
    return samples, ""


def complete(samples: Samples) -> list[Prediction]:
    """Return a prediction for each predicted text of each sample; missing values become "unknown", a missing seed 0.

    Raises UserError if a seed or mode is invalid, or a stated sample id occurs twice with one condition, seed and mode.
    """
    fed, conditions = samples.fed(), samples.conditions()
    if (other := RECORDINGS & {*fed}) and "eeg" in fed:
        raise UserError(
            f"{samples.path}: the column of conditions holds eeg and {', '.join(sorted(other))}, which is another "
            "recording and no control; give the rows of one recording, or name what was fed in a column eval_condition."
        )
    predictions: list[Prediction] = []
    seen: dict[tuple, int] = {}
    shared = Shared()
    known: dict[str, tuple[str, int]] = {}  # distinct reference -> sentence id, number of words
    for number, reference in enumerate(map(shared.text, samples.references)):
        if reference not in known:
            digest = hashlib.sha256(sentence_key(reference).encode()).hexdigest()
            known[reference] = f"text-{digest[:12]}", len(characters_apart(reference).split())
        about = {name: values[number] for name, values in samples.about.items()}
        subject, task = (
            UNKNOWN if about.get(name, "").strip().lower() in MISSING else shared.text(about[name].strip())
            for name in ("subject", "task")
        )
        timed = "onset" in about or "order" in about
        fields = {
            "sample_id": about.get("sample_id", f"row-{number + 1}"),
            "subject": subject,
            "task": task,
            "sentence_id": shared.text(about.get("sentence_id", known[reference][0])),
            "n_words": known[reference][1],
            "train_condition": shared.text(about.get("train_condition", UNKNOWN)),
            "seed": _seed(about, samples, number),
            "reference": reference,
            **(parse_time(about, samples.where(number), default=f"{subject}/{task}") if timed else {}),
        }
        for (condition, mode), texts in samples.outputs.items():
            condition = shared.text(about.get("eval_condition", conditions[number] if conditions else condition))
            mode = _mode(about, mode, samples, number)
            prediction = Prediction(**fields, eval_condition=condition, mode=mode, prediction=texts[number])
            if "sample_id" in about:
                key = (*row_key(prediction), fed[number] if fed else "")
                if (first := seen.setdefault(key, number)) != number:
                    raise UserError(
                        f"{samples.where(number)}: sample {prediction.sample_id!r} is on "
                        f"{samples.where(first).rpartition(', ')[2]} already; expected it once with these conditions, "
                        "seed and mode; remove one."
                    )
            predictions.append(prediction)
    return predictions


def _seed(about: Mapping[str, str], samples: Samples, row: int) -> int:
    stated = about.get("seed", "0")
    if not (stated.isascii() and stated.isdigit() and len(stated) < 19):
        raise UserError(f"{samples.where(row)}: seed is {stated!r:.40}; expected a whole number.")
    return int(stated)


def _mode(about: Mapping[str, str], mode: str, samples: Samples, row: int) -> str:
    """Return the mode that a sample's fields or else `mode` state, or "unknown". Raises UserError for another mode."""
    stated = mode_name(about.get("mode", mode)) or UNKNOWN
    if stated not in (*MODES, UNKNOWN):
        raise UserError(f"{samples.where(row)}: mode is {stated!r:.40}; expected one of {', '.join(MODES)}.")
    if stated == UNKNOWN and "decoding" in about:  # this field may name a search instead of a mode
        stated = mode_name(about["decoding"])
    if stated not in MODES and "forced" in about:
        forced = about["forced"].strip().lower()
        stated = "teacher_forced" if forced in YES else "free_running" if forced in NO else mode_name(forced)
    return stated if stated in MODES else UNKNOWN


def mode_name(text: str) -> str:
    """Return the mode that a text such as "with TF" means, or the text itself if it is no known name."""
    word = join_words(text)
    return "teacher_forced" if word in FORCED else "free_running" if word in FREE else text


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
