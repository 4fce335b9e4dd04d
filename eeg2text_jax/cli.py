"""The `eeg2text` command: picks the module of a subcommand and turns user errors into one sentence."""

import errno
import itertools
import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from eeg2text_jax.commands.overview import COMMANDS, command
from eeg2text_jax.errors import Terminated, UserError, did_you_mean
from eeg2text_jax.outputs import check_outputs
from eeg2text_jax.versions import __version__

# What to do about errors of the operating system: the disk, the user's share of it, the largest file allowed; places
# that may be read, or not even that.
ADVICE = {
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
        "free some space and run the same command again, what is finished is kept",
    ),
    **dict.fromkeys(
        (errno.EROFS, errno.EACCES, errno.EPERM),
        "choose a place that you may read and write, or get permission for this one",
    ),
}


def usage() -> str:
    lines = [f"  {name:<11} {line}" for name, line in COMMANDS.items()]
    return "\n".join(["usage: eeg2text COMMAND [--help] ...", "", *lines])


def main(argv: list[str] | None = None) -> int:
    """Runs one subcommand; returns its exit status: 2 for a user's mistake, 75 for a lost host, 130 or 143 if ended."""
    argv = sys.argv[1:] if argv is None else argv
    name, *rest = argv or ["--help"]
    # Else transformers says that there is no PyTorch, whose models are not used here.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    try:
        if name in ("-h", "--help", "help"):
            print(usage(), flush=True)
            return 0 if argv else 2
        if name in ("-V", "--version"):
            print(f"eeg2text {__version__}", flush=True)
            return 0
        if name not in COMMANDS:
            raise UserError(f"there is no such command; {did_you_mean(name, COMMANDS)} See `eeg2text --help`.")
        _refuse_addresses(rest)
        check_outputs(name, rest)
        _refuse_empty(rest)
        with _terminable(DRY in rest), _placed(name, rest) as rest:
            return command(name)(rest)
    except UserError as error:
        print(f"eeg2text {name}: {_readable(str(error))}", file=sys.stderr)
        return error.status
    except BrokenPipeError:  # the reader (`| head`) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno is None or not (error.filename or error.errno in ADVICE):
            raise
        place = f"{error.filename}: " if error.filename else ""
        advice = ADVICE.get(error.errno, "check the path")
        print(f"eeg2text {name}: {place}{os.strerror(error.errno)}; {advice}.", file=sys.stderr)
        return 2
    except Terminated as end:
        print(f"eeg2text {name}: {end}", file=sys.stderr)
        return 143
    except KeyboardInterrupt:
        print(f"eeg2text {name}: interrupted; {_after_interruption(name, DRY in argv)}", file=sys.stderr)
        return 130


DRY = "--dry-run"


def _after_interruption(name: str, dry: bool) -> str:
    resumes = not dry and name in ("run", "train", "decode", "judge")
    return "the same command resumes from what is finished." if resumes else "start the same command again."


def _refuse_empty(arguments: list[str]) -> None:
    """Raise if an option or argument is empty, as where a script's variable is not set. Fields may be empty."""
    for before, argument in itertools.pairwise(["", *arguments]):
        if before.startswith("--config."):
            continue
        if not argument:
            name = f"{before}=" if before.startswith("--") and "=" not in before else "an argument"
            raise UserError(f"{name} is empty; give it a value, or leave it out.")
        if re.fullmatch(r"--(?!config\.)[A-Za-z-]+=", argument):
            raise UserError(f"{argument} is empty; give it a value, or leave it out.")


STATEMENTS = ("--proof", "--licence")  # an address may stand there; nothing is read from it


def _refuse_addresses(arguments: list[str]) -> None:
    """
    Raises:
      UserError: an argument names a place on the web, or in a kind of bucket of which reading and writing do not know.
    """
    for before, argument in itertools.pairwise(["", *arguments]):
        if before in STATEMENTS or argument.split("=")[0] in STATEMENTS:
            continue
        found = re.match(r"(?!--config\.).*?(?:^|=)(([A-Za-z][A-Za-z0-9+.-]*)://(.*))", argument)  # fields: `ranges`
        if not found or found[2] in ("gs", "s3"):
            continue
        place, scheme, rest = found.groups()
        if scheme.lower() in ("gs", "s3"):
            raise UserError(f"{argument}: expected {scheme} in small letters; write {scheme.lower()}://{rest}.")
        if scheme.lower() == "file":
            raise UserError(f"{argument}: expected a path for a place on this machine; write {_path_of(place)}.")
        raise UserError(
            f"{argument}: web addresses are not read or written, only buckets (gs://, s3://); copy the file to this "
            "machine, or mount it as a folder, and give that path."
        )


def _path_of(place: str) -> str:
    """The path of a `file:` address."""
    return re.sub(r"^[A-Za-z]+://(localhost(?=/))?", "", place)


def _placed(name: str, arguments: list[str]) -> AbstractContextManager[list[str]]:
    """Copies of what is in buckets for the time of a command; without an address nothing of it is imported."""
    if not any(re.match(r"(?!--config\.).*?(^|=)(gs|s3)://", argument) for argument in arguments):
        return nullcontext(arguments)
    from eeg2text_jax.stores.arguments import placed

    return placed(name, arguments)


def _readable(sentence: str) -> str:
    """With addresses of buckets in place of their copies' paths, where there are any."""
    stores = sys.modules.get("eeg2text_jax.stores.arguments")
    return stores.readable(sentence) if stores else sentence


@contextmanager
def _terminable(dry: bool) -> Iterator[None]:
    """SIGTERM ends the command as an interruption does, with files renamed or not there; training has its own way.

    Args:
      dry: the command makes nothing, so that nothing resumes.
    """
    goes_on = "the same command goes on from what is finished."
    after = "nothing was made, start the same command again." if dry else goes_on

    def end(*_: object) -> None:
        raise Terminated(f"ended by SIGTERM; {after}")

    def unraisable(lost: Any) -> None:
        # The signal came during a callback of the garbage collector or a destructor, which let no exception out.
        if isinstance(lost.exc_value, Terminated):
            signal.setitimer(signal.ITIMER_REAL, 0.01)
        else:
            report(lost)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGALRM)}
    report, sys.unraisablehook = sys.unraisablehook, unraisable
    arrived, arrives = os.pipe()
    os.set_blocking(arrives, False)
    wakes = signal.set_wakeup_fd(arrives, warn_on_full_buffer=False)
    threading.Thread(target=_end_compilation, args=(arrived,), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakes)
        os.close(arrives)
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = report
        for number, handler in before.items():
            signal.signal(number, handler)


COMPILING = 6.0  # seconds after SIGTERM in which a compilation may end
COMPILER = os.path.join("jax", "_src", "compiler.py")


def _end_compilation(arrived: int) -> None:
    """End the process if SIGTERM comes during a compilation, which takes minutes in C++ and hears no signal.

    Nothing is half-written: files get their names when they are whole.

    Args:
      arrived: a pipe with the number of every signal, until it is closed.
    """
    with os.fdopen(arrived, "rb", buffering=0) as numbers:
        while number := numbers.read(1):
            if number[0] != signal.SIGTERM:
                continue
            end = time.monotonic() + COMPILING
            while _is_compiling():
                if time.monotonic() > end:
                    over = select.select([numbers], [], [], 0)[0] and not numbers.read(1)
                    if not over:  # else the command said already how it ended, and Python waits for the compiler
                        sys.stderr.write("eeg2text: ended by SIGTERM while compiling; the same command goes on.\n")
                        sys.stderr.flush()
                    os._exit(143)
                time.sleep(0.2)


def _is_compiling() -> bool:
    """Whether any thread is in XLA's compiler."""
    frames = list(sys._current_frames().values())
    while frames:
        frame = frames.pop()
        if frame.f_code.co_filename.endswith(COMPILER):
            return True
        frames += [frame.f_back] if frame.f_back else []
    return False
