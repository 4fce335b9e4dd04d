"""What Wang & Ji's two converters make of subject files, stated by us on top of scipy and h5py.

They stand for the scripts where our own readers are tested, so they share no code with those.
"""

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.io

BANDS = ("t1", "t2", "a1", "a2", "b1", "b2", "g1", "g2")


def pickle_v5(path: Path, files: Mapping[str, Path], answers: bool = False) -> None:
    """Writes the pickle of subject -> MAT v5 file; with `answers`, as for task1-SR."""
    dump(path, {subject: [_v5_sentence(s, answers) for s in _load_v5(file)] for subject, file in files.items()})


def pickle_v73(path: Path, files: Mapping[str, Path]) -> None:
    content = {}
    for subject, place in files.items():
        with h5py.File(place) as file:
            data = file["sentenceData"]
            content[subject] = [_v73_sentence(file, data, i) for i in range(len(data["rawData"]))]
    dump(path, content)


def dump(path: Path, content: Any) -> None:
    with path.open("wb") as file:
        pickle.dump(content, file, pickle.HIGHEST_PROTOCOL)


def _load_v5(path: Path) -> np.ndarray:
    return np.atleast_1d(scipy.io.loadmat(path, squeeze_me=True, struct_as_record=False)["sentenceData"])


def _v5_sentence(sentence: Any, answers: bool) -> dict[str, Any] | None:
    if isinstance(sentence.word, float):
        return None
    made: dict[str, Any] = {"content": sentence.content, "sentence_level_EEG": _bands(sentence, "mean")}
    if answers:
        made["answer_EEG"] = _bands(sentence, "answer_mean")
    words, masked, every = [], [], []
    for word in np.atleast_1d(sentence.word):
        every.append(word.content)
        if np.size(word.nFixations) and word.nFixations > 0:
            eeg = {measure: _bands(word, measure) for measure in ("FFD", "TRT", "GD")}
            words.append({"content": word.content, "nFixations": word.nFixations, "word_level_EEG": eeg})
            masked.append(word.content)
        else:
            masked.append("[MASK]")
    return made | _tokens(words, masked, every)


def _bands(holder: Any, prefix: str) -> dict[str, Any]:
    return {f"{prefix}_{band}": getattr(holder, f"{prefix}_{band}") for band in BANDS}


def _tokens(words: list[dict[str, Any]], masked: list[str], every: list[str]) -> dict[str, Any]:
    return {
        "word": words,
        "word_tokens_has_fixation": [word["content"] for word in words],
        "word_tokens_with_mask": masked,
        "word_tokens_all": every,
    }


def _v73_sentence(file: h5py.File, data: h5py.Group, i: int) -> dict[str, Any] | None:
    group = file[data["word"][i][0]]
    if isinstance(group, h5py.Dataset) or "rawEEG" not in group or "SFD" not in group:
        return None
    words, masked, every = [], [], []
    names = {measure: {f"{measure}_{band}" for band in BANDS} for measure in ("GD", "FFD", "TRT")}
    columns = {name: _column(file, group, name) for some in names.values() for name in some}
    for content, fixations in zip(_column(file, group, "content"), _column(file, group, "nFixations"), strict=True):
        token = _characters(content)
        if not re.search("[a-zA-Z0-9]", token):
            continue
        position = len(every)  # of the EEG: it counts words, not tokens, which shifts what follows a skipped token
        every.append(token)
        if fixations.ndim != 2:
            masked.append("[MASK]")
            continue
        eeg = {m: {name: _vector(columns[name][position]) for name in some} for m, some in names.items()}
        words.append({"content": token, "nFixations": fixations[0, 0], "word_level_EEG": eeg})
        masked.append(token)
    if not every:
        return None
    means = {f"mean_{band}": np.squeeze(file[data[f"mean_{band}"][i][0]][()]) for band in BANDS}
    content = _characters(file[data["content"][i][0]])
    return {"content": content, "sentence_level_EEG": means} | _tokens(words, masked, every)


def _column(file: h5py.File, group: h5py.Group, name: str) -> list[h5py.Dataset]:
    """A field of all words. Their script stops at a sentence of one word, whose fields are not behind references."""
    if group["content"].dtype.kind != "O":
        return [group[name]]
    return [file[reference[0]] for reference in group[name]]


def _vector(dataset: h5py.Dataset) -> Any:
    return np.squeeze(dataset[()]) if dataset.ndim == 2 else []


def _characters(dataset: h5py.Dataset) -> str:
    return "".join(chr(unit[0]) for unit in dataset)
