"""What was judged, by which command and when: files with their SHA-256 and rows."""

import dataclasses
import datetime
import html
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from etils import epath

from eeg2text_jax.auditing.page import table
from eeg2text_jax.files import file_digest
from eeg2text_jax.versions import __version__


@dataclasses.dataclass(frozen=True)
class JudgedFile:
    """One file: its name as it was given, the SHA-256 of its bytes, and how many rows were read."""

    name: str
    sha256: str
    rows: int


@dataclasses.dataclass(frozen=True)
class Judged:
    """The files of an audit. Command and date are empty in `audit.json` of a run: equal runs give equal files."""

    files: tuple[JudgedFile, ...]
    version: str = __version__
    command: str = ""
    date: str = ""

    @classmethod
    def of(cls, path: epath.Path, rows: int) -> "Judged":
        """What a run judges: one file of its folder."""
        return cls((JudgedFile(path.name, file_digest(path), rows),))

    def dated(self, command: Sequence[str] = ()) -> "Judged":
        """Return the same with the time, and the command: the one given, else that of this process."""
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
        return dataclasses.replace(self, command=shlex.join(command) or _own_command(), date=now)


def _own_command() -> str:
    """The command line of this process, where it is ours."""
    program = Path(sys.argv[0])
    ours = program.name == "eeg2text" or program.parent.name == "eeg2text_jax"
    return shlex.join(["eeg2text", *sys.argv[1:]]) if ours else "a call from Python"


def judged_part(judged: Judged | None) -> str:
    """The section of a report; empty where nobody said what was judged."""
    if judged is None:
        return ""
    judged = judged if judged.date else judged.dated()
    rows = [(file.name, str(file.rows), file.sha256) for file in judged.files]
    by = f"<code>{html.escape(judged.command)}</code>, eeg2text_jax {judged.version}"
    return f"<h2>What was judged</h2>{table(('file', 'rows', 'SHA-256'), rows)}<p>Judged {judged.date} by {by}.</p>"
