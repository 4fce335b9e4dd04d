"""What is odd about voltages and sentences, and may be a mistake: notes, no refusals."""

from collections.abc import Sequence

import numpy as np

from eeg2text_jax.data.raw.find import RawFile
from eeg2text_jax.data.raw.sentences import Reading

LOWEST, HIGHEST = 1e-8, 5e-3  # V, standard deviations between which EEG lies; its typical ones are 5 to 100 uV
NOISY = 20.0  # times the median channel
CONSTANT = 1e-3  # of the median channel
FEWEST = 3  # sentences; fewer may have equal times by chance


class Levels:
    """Standard deviations of channels as they were recorded, before a reference mixes them."""

    def __init__(self, channels: Sequence[str]):
        self._channels = channels
        self._found: list[np.ndarray] = []

    def add(self, volts: np.ndarray) -> None:
        """Voltages `[channels, samples]` of a sentence."""
        self._found.append(volts.std(axis=1))

    def notes(self) -> list[str]:
        """Sentences on channels unlike the others, and on a unit that cannot be right."""
        if not self._found:
            return []
        sizes = np.median(self._found, axis=0)
        usual = float(np.median(sizes))
        found = []
        if constant := self._some(sizes <= CONSTANT * usual):
            found.append(f"channels are constant, or nearly so, as recorded: {constant}; leave them out with "
                         "data.raw.exclude if they are dead.")  # fmt: skip
        if noisy := self._some((sizes > NOISY * usual) & (usual > 0)):
            found.append(f"channels vary more than {NOISY:g} times as much as the others: {noisy}; leave them out with "
                         "data.raw.exclude if they were loose, as the average reference spreads them.")  # fmt: skip
        if usual and not LOWEST < usual < HIGHEST:
            found.append(f"the median channel has a standard deviation of about {usual:.0e} V, and EEG one of 1e-05 V: "
                         "is the unit right? MNE expects volts; no verdict depends on it.")  # fmt: skip
        return found

    def _some(self, which: np.ndarray) -> str:
        named = [self._channels[i] for i in np.flatnonzero(which).tolist()]
        return ", ".join(named[:8]) + (", ..." if len(named) > 8 else "")


class SameTimes:
    """Recordings with the same sentences at the same times: one that lies there twice, such as raw and filtered."""

    def __init__(self) -> None:
        self._first: dict[tuple[tuple[str, float], ...], RawFile] = {}
        self._again: list[tuple[RawFile, RawFile]] = []

    def add(self, file: RawFile, sentences: Sequence[Reading]) -> None:
        """The sentences of a recording, in the order of time."""
        key = tuple((reading.text, round(reading.begin, 3)) for reading in sentences)
        first = self._first.setdefault(key, file)
        if first is not file and len(key) >= FEWEST:
            self._again.append((first, file))

    def notes(self) -> list[str]:
        """A sentence on all of them, if there are any."""
        if not self._again:
            return []
        first, second = self._again[0]
        return [
            f"{len(self._again)} recordings have the sentences of another one at the same times, such as "
            f"{second.path.name} ({second.subject}) those of {first.path.name} ({first.subject}); if they are copies, "
            "such as filtered ones, prepare one of each."
        ]
