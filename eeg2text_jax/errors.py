"""The exceptions whose message is meant for the user, and what such messages are made of."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Input that a user can mend.

    The message is one sentence that names the file, the field or line, what was expected, what came and what to
    do. The command line prints it without a traceback and exits with status 2.
    """


class Terminated(BaseException):
    """The run was told to end by SIGTERM, and has left behind what the next one goes on from.

    No `Exception`, as nothing that catches errors shall hold it up. The command line prints it and exits with status
    143, as after the signal itself.
    """


def first_line(error: BaseException) -> str:
    """The first line of an exception's message with something in it, or the name of its kind where there is none."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)


def one_line(error: BaseException) -> str:
    """All of an exception's message that fits into a line, or the name of its kind where there is none."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the nearest known one, or all of them where none is near."""
    known = list(known)
    near = nearest(name, known, 0.6)
    return f"did you mean {near!r}?" if near else f"there are {', '.join(map(str, known))}."


def nearest(name: str, known: Iterable[str], alike: float = 0.0) -> str | None:
    """The known name most like `name`, if it is `alike` enough (0 to 1)."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=alike)), None)
