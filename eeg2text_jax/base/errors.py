"""Exceptions whose message is for the user, and helpers for such messages."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """An error in the user's input, which the command line prints without a traceback; it exits with `status`.

    The message is one sentence that names the file, the field or line, the expected and the found value, and a fix.
    """

    status = 2


class HostLost(UserError):
    """A host could not be reached. A launcher restarts all hosts on this exit status, and the run resumes."""

    status = 75  # EX_TEMPFAIL of sysexits.h


class Terminated(BaseException):
    """SIGTERM ended the command, with status 143; training raises it after it has saved a checkpoint.

    It is no `Exception`, so that no error handler catches it.
    """


def first_line(error: BaseException) -> str:
    """Return the first non-blank line of an exception's message, or without one the name of its type."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)


def named(error: BaseException) -> str:
    """Return `ValueError: MESSAGE` with the first line of an exception's message, or the type alone."""
    kind, reason = type(error).__name__, first_line(error)
    return kind if reason == kind else f"{kind}: {reason}"


def one_line(error: BaseException) -> str:
    """Return an exception's message as one line, cut at 200 characters, or without one the name of its type."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def count_of(number: int, one: str, many: str = "") -> str:
    """Return "1 channel" or "2 channels"; `many` is the plural, if it is not `one` with an s."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: "did you mean" with the nearest names, or a list of all.

    One or two that begin with `name` are the nearest; else one or two that share a usual form with it, those of its
    section first: `optim.lr` for `learning_rate`, `batch.size` for `batch_size`.
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
    """Return the last part of a dotted name, its initials, and the last two parts as one word."""
    *section, last = name.split(".")
    words = last.split("_")
    return {last, "_".join([*section[-1:], last]), *(["".join(word[:1] for word in words)] if len(words) > 1 else [])}


def nearest(name: str, names: Iterable[str], alike: float = 0.0) -> str | None:
    """Return the name most similar to `name`, if the similarity is at least `alike` (0 to 1)."""
    return next(iter(difflib.get_close_matches(name, list(names), n=1, cutoff=alike)), None)


def shortlist(names: Iterable[object], most: int = 8) -> str:
    """Return the first `most` names, and an ellipsis if there are more."""
    texts = list(map(str, names))
    return ", ".join(texts[:most]) + (", ..." if len(texts) > most else "")
