"""Exceptions with messages for the user, and words of such messages."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """An error in the user's input, which a command prints without a traceback; it exits with `status`.

    Its message is one sentence with file, field or line, what is expected and found, and a fix.
    """

    status = 2


class HostLost(UserError):
    """A host cannot be reached; a launcher restarts all on this status, and the run resumes."""

    status = 75  # EX_TEMPFAIL of sysexits.h


class Terminated(BaseException):
    """SIGTERM ended the command, with status 143; training has saved a checkpoint by then.

    It is no `Exception`, so that no handler catches it.
    """


def first_line(error: BaseException) -> str:
    """Return the first non-blank line of an exception's message, or its type."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)


def named(error: BaseException) -> str:
    """Return an exception's type and `first_line`: `ValueError: MESSAGE`."""
    kind, reason = type(error).__name__, first_line(error)
    return kind if reason == kind else f"{kind}: {reason}"


def one_line(error: BaseException) -> str:
    """Return an exception's message as one line of up to 200 characters, or its type."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def count_of(number: int, one: str, many: str = "") -> str:
    """Return "1 channel" or "2 channels"; `many` is the plural, if it is not `one` with an s."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: "did you mean" the nearest, or a list of all.

    Nearest are one or two that begin with `name`, else one or two that share a usual form with it, those of its section
    first: `optim.lr` for `learning_rate`, `batch.size` for `batch_size`.
    """
    names = list(names)
    near = [other for other in names if name and other.startswith(name)]
    if len(near) not in (1, 2):
        near = [other for other in names if usual_forms(name) & usual_forms(other)]
        near = [other for other in near if other.rpartition(".")[0] == name.rpartition(".")[0]] or near
    if len(near) not in (1, 2):
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(map(str, names))}."


def usual_forms(name: str) -> set[str]:
    """Return a dotted name's last part, its initials, and the last two parts as one word."""
    *section, last = name.split(".")
    words = last.split("_")
    return {last, "_".join([*section[-1:], last]), *(["".join(word[:1] for word in words)] if len(words) > 1 else [])}


def nearest(name: str, names: Iterable[str], alike: float = 0.0) -> str | None:
    """Return the name most similar to `name`, by at least `alike` (0 to 1)."""
    return next(iter(difflib.get_close_matches(name, list(names), n=1, cutoff=alike)), None)


def shortlist(names: Iterable[object], most: int = 8) -> str:
    """Return the first `most` names, and an ellipsis if there are more."""
    texts = list(map(str, names))
    return ", ".join(texts[:most]) + (", ..." if len(texts) > most else "")
