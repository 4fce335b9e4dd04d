"""The folder of a tuned judge (`judge.json`, `prompt.safetensors`), and its score LATTEScore as a metric."""

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from etils import epath

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import content_digest, file_digest, parse_json, remove, replacing, write_text
from eeg2text_jax.base.packages import OWN_VERSION, __version__
from eeg2text_jax.base.stores.buckets import at_hand
from eeg2text_jax.instrument.metrics.metric import Metric, check_same_length, ratio
from eeg2text_jax.judge.frozen import Asker, Frozen, load_frozen
from eeg2text_jax.judge.pairs import normalize
from eeg2text_jax.judge.wording import Labels, Wording, label_ids
from eeg2text_jax.models.pretrained.folder import open_safetensors, write_safetensors

FORMAT = 1
FILE, PROMPT = "judge.json", "prompt.safetensors"
SOURCES = ("human labels", "controlled edits", "template pairs")
CHOICES = {  # field -> its possible values
    "dtype": ("float32", "bfloat16"),
    "param_dtype": ("float32", "bfloat16"),
    "exact": ("preserved", "exclude"),
    "source": SOURCES,
}


@dataclasses.dataclass(frozen=True)
class Judge:
    """A tuned judge: all that its scores depend on."""

    checkpoint: str  # a folder (relative to the judge's if it begins with a dot), or a name on the Hub
    weights: str  # SHA-256 of the model's weights
    tokenizer: str  # class, vocabulary size and hash of the tokenizer
    dtype: str  # of the computation
    param_dtype: str  # of the frozen weights
    wording: Wording
    labels: Labels
    prompt: np.ndarray  # float32 [P, D]
    threshold: float  # lowest score that counts as preserved
    threshold_how: str  # how the threshold was chosen, in words
    exact: str  # predictions without an error are "preserved", or left out ("exclude")
    source: str  # origin of the labels, one of `SOURCES`
    data: str  # SHA-256 of the pairs
    about: dict[str, Any] = dataclasses.field(default_factory=dict)  # AUC etc.
    fsdp: bool = False  # the model's weights are divided over the devices
    prompt_digest: str = ""  # SHA-256 of the prompt file; "" before it is written
    intact: bool = True  # judge.json matches its SHA-256

    def signature(self, name: str) -> str:
        """Return a text that names all that scores depend on; `name` is that of the language model."""
        wording = self.wording.name
        if before := self.wording.before:
            wording += f"|examples:[sha256:{hashlib.sha256(before.encode()).hexdigest()[:12]}]"
        return (
            f"judge:{name}[sha256:{self.weights[:12]}]|prompt:{len(self.prompt)}[sha256:{self.prompt_digest[:12]}]"
            f"|wording:{wording}|labels:{','.join(self.labels.words)}|threshold:{self.threshold:.3f}|exact:{self.exact}"
            f"|norm:lower,no-punctuation|empty:zero|source:{self.source.replace(' ', '-')}|version:{OWN_VERSION}"
        )


def write_judge(judge: Judge, folder: str | os.PathLike[str]) -> None:
    """Write a judge's folder atomically, in place of an older one."""
    fields = dataclasses.asdict(judge)
    for name in ("prompt", "prompt_digest", "intact"):  # elsewhere, or found on reading
        del fields[name]
    fields |= {"weights_sha256": fields.pop("weights"), "data_sha256": fields.pop("data")}
    fields["wording"]["full_stop"] = judge.wording.full_stop
    content = {"format": FORMAT, **fields, "version": __version__}
    folder = epath.Path(folder)
    with replacing(folder) as partial:
        partial.mkdir(parents=True)
        write_safetensors(Path(partial) / PROMPT, {"prompt": np.asarray(judge.prompt, np.float32)}, {})
        content["prompt_sha256"] = file_digest(partial / PROMPT)
        content["sha256"] = content_digest(content)
        write_text(partial / FILE, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        remove(folder)  # no folder is renamed onto one with files


def read_judge(folder: str | os.PathLike[str]) -> Judge:
    """Read a judge without its language model. Raises UserError if a file is missing, damaged or of something else."""
    folder = Path(at_hand(folder))
    path = folder / FILE
    try:
        content = parse_json(path.read_bytes().decode("utf8"))
    except OSError as error:
        raise UserError(f"{path}: there is no such file; give DIR/judge that `eeg2text judge` wrote.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8; tune the judge again.") from error
    except ValueError as error:
        raise UserError(f"{path}: is not JSON; tune the judge again or copy it anew.") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        written = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise UserError(f"{path}: has the format {written!r:.40}; expected {FORMAT}; tune the judge again.")
    field = functools.partial(_field, path, content)
    of_wording = functools.partial(_field, path, {"before": "", **field("wording", dict)})
    wording = Wording(of_wording("name"), of_wording("template"), of_wording("before"))
    if "{reference}" not in wording.template or "{hypothesis}" not in wording.template:
        raise UserError(f"{path}: wording.template lacks {{reference}} or {{hypothesis}}; tune the judge again.")
    threshold = field("threshold", float)
    if not 0 <= threshold <= 1:
        raise UserError(f"{path}: the threshold is {threshold}; expected a number from 0 to 1; copy the judge again.")
    return Judge(
        **{name: field(name) for name in ("checkpoint", "tokenizer", "threshold_how", *CHOICES)},
        weights=field("weights_sha256"),
        wording=wording,
        labels=_labels(path, field("labels", dict)),
        prompt=_read_prompt(folder / PROMPT, field("prompt_sha256"), bool(wording.before)),
        threshold=threshold,
        data=field("data_sha256"),
        about=field("about", dict),
        fsdp=content.get("fsdp") is True,
        prompt_digest=field("prompt_sha256"),
        intact=content.pop("sha256", None) == content_digest(content),
    )


_KINDS = {dict: "an object", list: "a list", str: "text", float: "a number"}


def _field(path: Path, content: dict[str, Any], name: str, kind: type = str) -> Any:
    """Return a field of a JSON object. Raises UserError if its type is wrong, or it is not among its `CHOICES`."""
    value = content.get(name)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UserError(f"{path}: {name} is {value!r:.60}; expected {_KINDS[kind]}; copy the judge again.")
    if (choices := CHOICES.get(name)) and value not in choices:
        raise UserError(f"{path}: {name} is {value!r:.60}; expected {' or '.join(choices)}; copy the judge again.")
    return value


def _labels(path: Path, content: dict[str, Any]) -> Labels:
    words, ids = (_field(path, content, name, list) for name in ("words", "ids"))
    whole = all(
        isinstance(pieces, list) and pieces and all(type(i) is int and 0 <= i < 2**31 for i in pieces) for pieces in ids
    )
    if len(words) != 2 or len(ids) != 2 or not whole or not all(isinstance(word, str) for word in words):
        raise UserError(f"{path}: labels are not two words with their token ids; tune the judge again.")
    return Labels((words[0], words[1]), (tuple(ids[0]), tuple(ids[1])))


def _read_prompt(path: Path, digest: str, empty: bool) -> np.ndarray:
    """Return the prompt, float32 `[P, D]`; P may be 0 if `empty`. Raises UserError if content or SHA-256 is wrong."""
    if not path.is_file():
        raise UserError(f"{path}: there is no such file; copy the judge again.")
    tensors = open_safetensors(path)
    kinds = {name: (str(tensor.dtype), tensor.shape) for name, tensor in tensors.items()}
    dtype, shape = kinds.get("prompt", ("", ()))
    if len(kinds) != 1 or dtype != "float32" or len(shape) != 2 or (0 in shape and not empty):
        raise UserError(f"{path}: holds {kinds!r:.100}; expected one tensor, prompt, float32 [P, D]; copy it again.")
    prompt = np.array(tensors["prompt"])
    if not np.isfinite(prompt).all():
        raise UserError(f"{path}: the prompt has numbers that are not finite; tune the judge again.")
    if file_digest(path) != digest:
        raise UserError(f"{path}: is not the prompt that {FILE} is about (another SHA-256); copy the judge again.")
    return prompt


def load_judged(folder: str | os.PathLike[str]) -> tuple[Judge, Frozen]:
    """Load a judge with its language model. Raises UserError if it cannot be read or was edited, or they do not fit."""
    judge, path = read_judge(folder), Path(folder) / FILE
    place = judge.checkpoint
    if place.startswith("."):
        place = os.path.normpath(Path(folder) / place)
    frozen = load_frozen(place, judge.dtype, judge.param_dtype, judge.fsdp)
    of_frozen = {"weights": frozen.digest, "tokenizer": frozen.tokenizer_digest}
    for what, ours in of_frozen.items():
        if ours != (theirs := getattr(judge, what)):
            raise UserError(
                f"{path}: was tuned on other {what} ({theirs:.60}) than {frozen.folder} has ({ours:.60}); restore the "
                "model that the judge was tuned on, or tune the judge again."
            )
    width, expected = judge.prompt.shape[1], frozen.model.spec.d_model
    if width != expected:
        raise UserError(f"{path}: the prompt is {width} wide, {frozen.folder} is {expected}; tune the judge again.")
    for word, ids in zip(judge.labels.words, judge.labels.ids, strict=True):
        if label_ids(word, frozen.tokenizer, judge.wording if frozen.alone else None) != ids:
            raise UserError(f"{path}: the label {word!r:.40} has other token ids in the checkpoint; tune it again.")
    if frozen.max_tokens(judge.wording, judge.labels, len(judge.prompt)) < 1:
        raise UserError(f"{path}: its prompt leaves no room for a pair in {frozen.name}; tune a shorter one.")
    if not judge.intact:
        raise UserError(f"{path}: was changed since it was written (its SHA-256 is another); copy the judge again.")
    return judge, frozen


# LATTEScore: the percentage of samples whose meaning is kept, according to a judge.
#
# A prediction that equals its reference after `normalize` is kept or left out, as `exact` says. `lattescore-mean` is
# 100 times the mean score; the audit uses it, as it varies even if the percentage is 0.

REMEMBERED = 1 << 20  # cache size in pairs


class LatteScore(Metric):
    """LATTEScore; a pair with a blank side counts as lost, and `truncate` cuts pairs too long for the model."""

    name = "lattescore"
    columns = ("lattescore", "lattescore-mean")
    statistic_names = ("preserved", "sum_score", "samples")

    def __init__(self, judge: Judge, frozen: Frozen, truncate: bool = False):
        self.signature = judge.signature(frozen.name)
        self.source = judge.source
        self._judge = judge
        self._asker = Asker(frozen, judge.prompt, judge.wording, judge.labels, truncate)
        self._known: dict[tuple[str, str], np.ndarray] = {}
        self._blank: set[tuple[str, str]] = set()

    def __call__(self, references: Sequence[str]) -> list[Metric]:
        """Return this metric with its cache, whatever the references."""
        return [self]

    def statistics(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        check_same_length(predictions, references)
        return self._rows(list(zip(references, predictions, strict=True)))

    def pairwise(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        rows = self._rows([(reference, prediction) for prediction in predictions for reference in references])
        return rows.reshape(len(predictions), len(references), 3)

    def corpus(self, summed: np.ndarray) -> np.ndarray:
        return 100.0 * ratio(summed[..., :2], summed[..., 2:], np.nan)

    def notes(self) -> list[str]:
        messages = []
        if self.source != "human labels":
            messages.append(f"lattescore: the judge was tuned on {self.source}, not on people's ratings.")
        if self._blank:
            messages.append(f"lattescore: {len(self._blank)} pairs with a blank side count as meaning lost.")
        if self._known and not any(kept for kept, *_ in self._known.values()):
            highest = max(score for _, score, _ in self._known.values())
            messages.append(
                f"lattescore: 0, because no pair reaches the judge's threshold of {self._judge.threshold:.3f} (the "
                f"highest score is {highest:.3f}); lattescore-mean in --json still tells files apart."
            )
        if cut := self._asker.encoder.cut:
            messages.append(f"lattescore: {cut} pairs were longer than the model takes and were cut.")
        return messages

    def _rows(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Return (preserved, score, 1) of every (reference, prediction), `[N, 3]`."""
        if len(self._known) > REMEMBERED:
            self._known.clear()
        asked = []
        for pair in dict.fromkeys(pairs):
            if pair in self._known:
                continue
            reference, prediction = map(normalize, pair)
            if not reference or not prediction:
                self._known[pair] = np.array([0.0, 0.0, 1.0])
                self._blank.add(pair)
            elif reference == prediction:
                self._known[pair] = np.array([1.0, 1.0, 1.0]) * (self._judge.exact != "exclude")
            else:
                asked.append(pair)
        scores = self._asker.scores(asked) if asked else ()
        for pair, score in zip(asked, scores, strict=True):
            self._known[pair] = np.array([float(score >= self._judge.threshold), score, 1.0])
        return np.array([self._known[pair] for pair in pairs]).reshape(len(pairs), 3)
