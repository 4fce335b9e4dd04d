"""The `eeg2text` command: run a subcommand, and print errors of the user as one sentence."""

import errno
import importlib
import io
import itertools
import os
import re
import select
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from eeg2text_jax.base.errors import Terminated, UserError, did_you_mean
from eeg2text_jax.base.packages import __version__

# Command -> its line in `eeg2text --help`. A command is a function `argv -> exit status`; its module is imported when
# it runs, so that `eeg2text score` does not wait for JAX.
COMMANDS = {
    "run": "prepare, train the grid, decode (free-running and teacher-forced), score, audit (resumes)",
    "prepare": "recordings or tables -> one data file",
    "check": "what is in a data file, and what is wrong with it",
    "export-data": "a data file -> Parquet, for pandas and datasets",
    "split": "divide a data file into train, dev and test and certify it",
    "leakage": "what the split methods (a) to (f) leak from train to test: the cross-subject paper's Table 1",
    "train": "the training stage of `run`",
    "decode": "the decoding stage of `run`",
    "read": "what would be judged of predictions files: columns, joins, mode, conditions, time, groups, ten rows",
    "score": "metrics of any predictions file",
    "audit": "does the model use the EEG? a verdict for any predictions files",
    "compare": "decoders of the same sentences, side by side",
    "example": "two example files of decoded text, and their verdict",
    "app": "a page in the browser that judges files of decoded text",
    "judge": "tune the judge of LATTEScore: a soft prompt that decides whether a text keeps the meaning",
    "table": "finished runs, or judges, in one table: model, tasks, split, mode, conditions, scores, verdicts",
    "reproduce": "a table or figure of the papers: its price, its missing runs, the table beside the paper's rows",
    "export": "trained parameters -> a folder that transformers loads",
    "records": "results, predictions and what to cite in formats that other tools load",
    "preflight": "compile training and decoding for a TPU that is not present: memory, fit, communication",
    "configs": "the bundled configurations; `copy NAME` writes one to a file for editing",
    "completion": "a script that completes commands and options in bash or zsh",
    "bench": "throughput of the programs that a run runs, on all devices; beside an earlier measurement",
}

# Commands that share a module, as MODULE:FUNCTION; every other command is `main` in the module of its name.
PLACES = {
    **{name: f"run:{name}" for name in ("run", "train", "decode", "judge", "export", "preflight", "bench")},
    **{name: f"data:{name}" for name in ("prepare", "check", "export-data", "split")},
    **{name: f"paper_tables:{name}" for name in ("leakage", "table")},
    **{name: f"audit:{name}" for name in ("read", "example")},
    **{name: f"shell:{name}" for name in ("configs", "completion", "app")},
}


def command(name: str) -> Callable[[list[str]], int]:
    module, _, function = PLACES.get(name, f"{name}:main").partition(":")
    return getattr(importlib.import_module(f"eeg2text_jax.commands.{module}"), function.replace("-", "_"))


# docs/stability.md: a deprecated command works, with a warning; what is retired is refused with what to do instead.
DEPRECATED = {"fair-table": "table"}  # old name of a command -> its current name; goes with version 2.0
RETIRED = {  # commands and options of version 0.2
    "audit --secondary": "name all endpoints in --endpoint=FIRST,OTHERS; the first decides",
    "audit --encoder": "write --endpoint=similarity:ENCODER or --endpoint=bertscore-f:ENCODER",
    "audit --judge": "write --endpoint=lattescore-mean:DIR",
    **dict.fromkeys(
        ("audit --layer", "audit --rescale", "audit --truncate"),
        "`eeg2text score` has it; an endpoint of the audit uses the default",
    ),
    **dict.fromkeys(
        ("audit --resamples", "audit --seed", "audit --stratum-size"),
        "leave it out; docs/method.md has the strata and the 10,000 pairings",
    ),
    "audit --candidates": "give the rankings themselves to --eeg and --control",
    "bench --stage": "bench measures all programs of a run, --config=NAME says which run",
    "bench --peer": "tools/benchmarks/beside.py of a clone measures other libraries",
}

FULL = "free some space and run the same command again, what is finished is kept"
FORBIDDEN = "choose a place that you may read and write, or get permission for this one"
# Error number of the operating system -> what a user can do.
ADVICE = dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), FULL)
ADVICE |= dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), FORBIDDEN)


def usage() -> str:
    lines = [f"  {name:<11} {line}" for name, line in COMMANDS.items()]
    return "\n".join(["usage: eeg2text COMMAND [--help] ...", "", *lines])


def main(argv: list[str] | None = None) -> int:
    """Run a subcommand; return 0, or 2 for a user's error, 75 for a lost host, 130 after Ctrl-C, 143 after SIGTERM."""
    argv = sys.argv[1:] if argv is None else argv
    name, *rest = argv or ["--help"]
    # Keeps transformers from warning that there is no PyTorch, whose models are not used here.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")  # a file's name need not be UTF-8
    try:
        if name in ("-h", "--help", "help"):
            print(usage(), flush=True)
            return 0 if argv else 2
        if name in ("-V", "--version"):
            print(f"eeg2text {__version__}", flush=True)
            return 0
        return _run(name, rest)
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(name: str, rest: list[str]) -> int:
    from eeg2text_jax.commands import arguments  # takes 50 ms, which `eeg2text --help` need not wait for

    resumes = name in arguments.MIRRORED and "--dry-run" not in rest
    after = "the same command resumes from what is finished." if resumes else "start the same command again."
    try:
        if name in DEPRECATED:
            old, name = name, DEPRECATED[name]
            print(f"eeg2text {old}: is deprecated and goes with version 2.0; write `eeg2text {name}`.", file=sys.stderr)
        if name not in COMMANDS:
            raise UserError(f"there is no such command; {did_you_mean(name, COMMANDS)} See `eeg2text --help`.")
        arguments.check_addresses(rest)
        arguments.check_outputs(name, rest)
        _refuse_empty(rest)
        for option in (argument.partition("=")[0] for argument in rest):
            if advice := RETIRED.get(f"{name} {option}"):
                raise UserError(f"{option}: is gone since version 1.0; {advice}.")
        with _terminable(name, after), arguments.localize(name, rest) as rest:
            return command(name)(rest)
    except UserError as error:
        print(f"eeg2text {name}: {arguments.with_urls(str(error))}", file=sys.stderr)
        return error.status
    except OSError as error:
        if error.errno is None or not (error.filename or error.errno in ADVICE):
            raise
        place, advice = f"{error.filename}: " if error.filename else "", ADVICE.get(error.errno, "check the path")
        print(f"eeg2text {name}: {place}{os.strerror(error.errno)}; {advice}.", file=sys.stderr)
        return 2
    except Terminated as end:
        print(f"eeg2text {name}: {end}", file=sys.stderr)
        return 143
    except KeyboardInterrupt:
        print(f"eeg2text {name}: interrupted; {after}", file=sys.stderr)
        return 130


def _refuse_empty(arguments: list[str]) -> None:
    """Raise UserError for an empty argument, as from an unset shell variable. Configuration fields may be empty."""
    for before, argument in itertools.pairwise(["", *arguments]):
        if before.startswith("--config."):
            continue
        name = argument if re.fullmatch(r"--(?!config\.)[A-Za-z-]+=", argument) else ""
        if not argument:
            name = f"{before}=" if before.startswith("--") and "=" not in before else "an argument"
        if name:
            raise UserError(f"{name} is empty; give it a value, or leave it out.")


@contextmanager
def _terminable(name: str, after: str) -> Iterator[None]:
    """Raise `Terminated` in the main thread if SIGTERM comes during the block; training installs its own handler.

    The message of the command `name` ends with `after`, what the user can do.
    """
    ended = left = False

    def end(*_: object) -> None:
        nonlocal ended
        ended = True
        raise watched(Terminated(f"ended by SIGTERM; {after}"))

    def watched(raised: Terminated) -> Terminated:
        weakref.finalize(raised, again).atexit = False
        return raised

    def again() -> None:
        if not left:  # a destructor, the garbage collector or a library discarded the exception
            signal.setitimer(signal.ITIMER_REAL, 0.01)

    def unraisable(lost: Any) -> None:
        if isinstance(lost.exc_value, Terminated):
            return
        # tensorstore's threads report each finished read to an event loop, which the signal has closed.
        if not (ended and repr(lost.exc_value) == "RuntimeError('Event loop is closed')"):
            report(lost)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGALRM)}
    report, sys.unraisablehook = sys.unraisablehook, unraisable
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_end_compilation, args=(reading, name, after), daemon=True).start()
    try:
        yield
    finally:
        left = True
        signal.set_wakeup_fd(wakeup)
        os.close(writing)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if not ended:  # else threads may still report finished reads
            sys.unraisablehook = report
        for number, handler in before.items():
            signal.signal(number, handler)


COMPILING = 6.0  # seconds that a compilation may still take after SIGTERM
COMPILER = os.path.join("jax", "_src", "compiler.py")


def _end_compilation(signals: int, name: str, after: str) -> None:
    """End the process if SIGTERM comes during a compilation, which runs in C++ for minutes and handles no signal.

    No file is left half-written: each gets its name when it is complete. `signals` is the pipe to which Python writes
    the number of every signal; the function returns when it is closed.
    """
    with os.fdopen(signals, "rb", buffering=0) as numbers:
        while number := numbers.read(1):
            if number[0] != signal.SIGTERM:
                continue
            end = time.monotonic() + COMPILING
            while _is_compiling():
                if time.monotonic() > end:
                    has_ended = select.select([numbers], [], [], 0)[0] and not numbers.read(1)
                    try:
                        if not has_ended:  # else the command printed its message, and Python waits for the compiler
                            sys.stderr.write(f"eeg2text {name}: ended by SIGTERM while compiling; {after}\n")
                            sys.stderr.flush()
                    finally:  # also where nobody reads the message any more
                        os._exit(143)
                time.sleep(0.2)


def _is_compiling() -> bool:
    stacks = (traceback.walk_stack(frame) for frame in sys._current_frames().values())
    return any(frame.f_code.co_filename.endswith(COMPILER) for frame, _ in itertools.chain.from_iterable(stacks))
