"""The judged files with SHA-256 and rows, the command and the date."""

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
    """One judged file: its name on the command line, the SHA-256 of its bytes, and the number of rows."""

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
        """Return the record of a run's audit: one file of its folder."""
        return cls((JudgedFile(path.name, file_digest(path), rows),))

    def dated(self, command: Sequence[str] = ()) -> "Judged":
        """Return a copy with the current time and the command (default: this process's command)."""
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
        return dataclasses.replace(self, command=shlex.join(command) or _own_command(), date=now)


def _own_command() -> str:
    """Return the command line of this process if it is `eeg2text`."""
    program = Path(sys.argv[0])
    ours = program.name == "eeg2text" or program.parent.name == "eeg2text_jax"
    return shlex.join(["eeg2text", *sys.argv[1:]]) if ours else "a call from Python"


def judged_part(judged: Judged | None) -> str:
    """Return the report's section on the judged files; "" if unknown."""
    if judged is None:
        return ""
    judged = judged if judged.date else judged.dated()
    rows = [(file.name, str(file.rows), file.sha256) for file in judged.files]
    by = f"<code>{html.escape(judged.command)}</code>, eeg2text_jax {judged.version}"
    return f"<h2>What was judged</h2>{table(('file', 'rows', 'SHA-256'), rows)}<p>Judged {judged.date} by {by}.</p>"
