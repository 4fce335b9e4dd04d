"""A small study with every irregularity of ZuCo's files."""

import dataclasses
from pathlib import Path

import numpy as np

from eeg2text_testing.zuco_files import Irregularities, Simulator, Struct

TEXTS = (
    "A gorgeous , witty film",
    "He drove his cars, twice",  # one of its fixations was rejected
    "It -- or so they say -- works",  # tokens that are no words, before others
    "Never seen",  # a placeholder
    "Nobody looked here",  # no fixation: no rawEEG, rawET, SFD
    "Twice each word",  # no SFD
    "Superb",  # one word
    "“Quoted” naïve – café & co",
    "feels emp11111ty and unsatisfying",
    " ".join(f"w{i}" for i in range(60)),  # longer than the 56 words of Wang & Ji's code
)
MISSING, UNREAD, NO_SINGLE, ONE_WORD, SHIFTED, REJECTED = 3, 4, 5, 6, 2, 1
WHAT = Irregularities(rejected=0, missing=(MISSING,), unread=(UNREAD,), no_single=(NO_SINGLE,), answered=(1,))


@dataclasses.dataclass(frozen=True)
class Study:
    """The same content as MAT v5, v7 and v7.3: folders, each with resultsZAB_SR.mat."""

    content: list[Struct]
    v5: Path
    v7: Path
    v73: Path


def make_content(seed: int, texts: tuple[str, ...] = TEXTS, what: Irregularities = WHAT) -> list[Struct]:
    """One subject reading `texts`; a fixation in sentence 1 was rejected."""
    content = Simulator(seed, np.float32, raw_samples=(3, 2)).subject(texts, what)
    content[SHIFTED]["word"] = fixate(content[SHIFTED]["word"], content[0]["word"])
    rejected = next(word for word in content[REJECTED]["word"] if word["nFixations"] is not None)
    rejected["GD_a1"] = np.full((1, 105), np.nan, np.float32)
    return content


def fixate(words: list[Struct], others: list[Struct]) -> list[Struct]:
    """All words fixated once, so that a shift shows: EEG of a fixated word of another sentence, slightly changed."""
    source = next(word for word in others if word["nFixations"] is not None)
    made = []
    for i, word in enumerate(words, 1):
        scaled = {name: value * (1 + i / 100) for name, value in source.items() if name.startswith("GD_")}
        ramp = {
            name: value + np.float32(i) * np.arange(value.size, dtype=value.dtype) / 100
            for name, value in scaled.items()
        }
        made.append({name: word["content"] if name == "content" else ramp.get(name, source[name]) for name in words[0]})
    return made
