"""Provenance: the evidence that no target reached the decoder, and the audited files with their SHA-256.

A false statement cannot be detected, so the report says whose statement it is.
"""

import dataclasses
import datetime
import enum
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from etils import epath

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import file_digest
from eeg2text_jax.versions import __version__

FOLDERS = re.compile(r"(?<![\w.:/~])~?/([^/\s=,:]+/)+")  # of an absolute path, which tells of the machine
URL = re.compile(r"https?://[^\s/]+\.[^\s/]+\S*")
RANKED = ("contrastive", "likelihood")  # modes of rankings
PROOF_WORDS = 4  # fewest different words of a `--proof` that is no URL
FORCED = re.compile(
    r"teacher.?forc|ground.?truth (tokens|words|prefix)|(given|fed) the (target|reference)", re.IGNORECASE
)
DENIED = {"no", "not", "never", "without", "none", "neither", "nor", "instead", "than", "isn", "wasn", "weren"}
AVERAGED = re.compile(r"\b(averag|pooled|mean of)", re.IGNORECASE)


class Level(enum.StrEnum):
    """Levels of evidence that predictions are free-running."""

    DECODED_HERE = "decoded here"
    DECODED_AGAIN = "decoded again"
    STATED = "stated"
    UNKNOWN = "not known"
    CONTRADICTED = "contradicted"


@dataclasses.dataclass(frozen=True)
class Provenance:
    """The level of evidence that predictions are free-running, with the evidence in words."""

    level: Level
    statement: str = ""  # the evidence and its source, or the findings that contradict it
    checked: tuple[str, ...] = ()  # of rows that were decoded again: sentences on what else was checked
    not_checked: tuple[str, ...] = ()  # sentences on what was not

    @property
    def text(self) -> str:
        return f"{self.level.value}{f': {self.statement}' if self.statement else ''}"

    @property
    def sentence(self) -> str:
        return f"Origin of the outputs: {self.text.removesuffix('.')}."

    @property
    def lines(self) -> list[str]:
        """What was and was not checked, a sentence each."""
        return [
            *(f"Checked: {line}." for line in self.checked),
            *(f"Not checked: {line}." for line in self.not_checked),
        ]


DECODED_HERE = Provenance(Level.DECODED_HERE, "by this run of eeg2text, whose free-running decoder takes no target")
RANKED_HERE = Provenance(Level.DECODED_HERE, "ranked by this run of eeg2text, which scores every candidate alike")


def provenance_of(
    mode: str, *, decoded: Provenance | None, proof: str, stated_by: str, contradictions: list[str]
) -> Provenance:
    """Return the provenance of predictions; contradictions in their structure override every statement.

    Args:
      mode: the decoding mode that the rows state.
      decoded: the provenance of predictions that eeg2text decoded, here or again; None: it did not.
      proof: the authors' statement; "" if there is none.
      stated_by: words that say who states the mode, such as "the file states".
      contradictions: messages of findings that only a target in the decoder explains.
    """
    if contradictions:
        return Provenance(Level.CONTRADICTED, "; ".join(contradictions))
    if decoded:
        return decoded
    if proof:
        return Provenance(Level.STATED, f"the authors state: {proof}")
    if mode == "free_running":
        return Provenance(Level.STATED, f"{stated_by} that the predictions ran free")
    if mode in RANKED:
        return Provenance(Level.STATED, f"{stated_by} that candidates were scored without the answer ({mode})")
    if mode == "teacher_forced":
        return Provenance(Level.CONTRADICTED, "the file states that the predictions were teacher-forced")
    return Provenance(Level.UNKNOWN, "nothing says whether they ran free; state it with --mode=free_running or --proof")


def checked_proof(text: str) -> str:
    """Return the statement of `--proof` with single spaces; "" if none was given.

    Raises:
      UserError: the statement is neither a URL nor a text of at least `PROOF_WORDS` different words, or it says that
        teacher forcing was used.
    """
    words = set(re.findall(r"[^\W\d_]{2,}", text.lower()))
    if FORCED.search(text) and not words & DENIED:
        raise UserError(
            f"--proof={text!r}: says that the decoder was given the target text; expected a statement of how you know "
            "that no target text reached the decoder."
        )
    if text and len(words) < PROOF_WORDS and not URL.fullmatch(text.strip()):
        raise UserError(
            f"--proof={text!r}: expected a sentence with at least {PROOF_WORDS} different words, or a link "
            "(https://...), that says how you know that no target text reached the decoder (no teacher forcing)."
        )
    return " ".join(text.split())


@dataclasses.dataclass(frozen=True)
class JudgedFile:
    """One audited file of predictions; the folders of absolute paths are left out."""

    name: str  # as on the command line
    sha256: str
    rows: int
    read: tuple[str, ...] = ()  # sentences about how it was read

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", FOLDERS.sub("", self.name))
        object.__setattr__(self, "read", tuple(FOLDERS.sub("", line) for line in self.read))


@dataclasses.dataclass(frozen=True)
class Judged:
    """The audited files. A run's `audit.json` has no command and date, so that equal runs give equal files."""

    files: tuple[JudgedFile, ...]
    version: str = __version__
    command: str = ""
    date: str = ""

    @classmethod
    def of(cls, path: epath.Path, rows: int) -> "Judged":
        """Return the record of `path`, a predictions file with `rows` rows in the folder of a run."""
        return cls((JudgedFile(path.name, file_digest(path), rows),))

    def dated(self, command: Sequence[str] = ()) -> "Judged":
        """Return a copy with the current time and the command; default: the command of this process."""
        program = Path(sys.argv[0])
        if not command and (program.name == "eeg2text" or program.parent.name == "eeg2text_jax"):
            command = ["eeg2text", *sys.argv[1:]]
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
        plain = shlex.join(FOLDERS.sub("", word) for word in command)
        return dataclasses.replace(self, command=plain or "a call from Python", date=now)
