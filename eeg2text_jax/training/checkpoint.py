"""Orbax checkpoints, written in a thread and verified before a restore.

Each has `digests.json`, the SHA-256 of its other files, which is written before the checkpoint gets its final name. The
first host writes alone and gathers all shards first, so that the files do not depend on the number of hosts.
"""

import contextlib
import itertools
import json
import logging
import os
import re
import shutil
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath
from jax.experimental import multihost_utils

from eeg2text_jax.base.devices.hosts import host_number, is_main, main_decides, to_main
from eeg2text_jax.base.errors import Terminated, UserError, first_line, named
from eeg2text_jax.base.files import content_digest, file_digest, files_below, parse_json
from eeg2text_jax.base.stores.buckets import pull_folder


class Preemption:
    """Turn SIGTERM into a request to save a checkpoint and stop; on several hosts JAX makes all stop after one step."""

    def __init__(self) -> None:
        self._received = False

    def __enter__(self) -> "Preemption":
        # On several hosts JAX handles the signal; only a main thread may install a handler.
        self._installed = jax.process_count() == 1 and threading.current_thread() is threading.main_thread()
        if self._installed:
            self._before = signal.signal(signal.SIGTERM, self._receive)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._installed:
            signal.signal(signal.SIGTERM, self._before)
        if self._received and kind is None:
            raise Terminated("ended by SIGTERM; what is trained is saved, and the same command goes on from there.")

    def stop_after(self, step: int) -> bool:
        """Return whether training must stop; call this after every step."""
        if jax.process_count() > 1:
            self._received = multihost_utils.reached_preemption_sync_point(step)
        return self._received

    def _receive(self, signum: int, frame: FrameType | None) -> None:
        self._received = True


DIGESTS = "digests.json"
COMMITTED = "commit_success.txt"  # orbax's note that a save is finished, with the path of the checkpoint
_METADATA = "_CHECKPOINT_METADATA"
_CHANGED_LATER = (_METADATA, COMMITTED)  # orbax changes both after the digests are written
_NONE = -1  # in place of a step number: there is no checkpoint


class Checkpoints(contextlib.AbstractContextManager["Checkpoints"]):
    """The newest two checkpoints of a workdir; the exit waits for the last save.

    A damaged one is renamed and the one before is taken; if `read_only`, it is an error, and nothing is written.
    """

    def __init__(self, workdir: str | epath.Path, *, read_only: bool = False):
        logging.getLogger("absl").addFilter(_is_not_from_orbax)
        self.directory = epath.Path(workdir).resolve() / "checkpoints"
        self._read_only, self._saving = read_only, _NONE
        self._manager = None
        if is_main() and not read_only:
            self.directory.mkdir(parents=True, exist_ok=True)
        if is_main() and self.directory.is_dir():
            self._manager = self._open(read_only=read_only)

    def _open(self, *, read_only: bool) -> ocp.CheckpointManager:
        """Return an orbax manager that waits for no other host."""
        host = host_number()
        hosts = {"primary_host": host, "active_processes": {host}, "barrier_sync_key_prefix": f"host_{host}"}
        options = ocp.CheckpointManagerOptions(
            max_to_keep=2,
            create=False,
            read_only=read_only,
            cleanup_tmp_directories=not read_only,  # of a process killed while it saved
            step_prefix="step",
            async_options=ocp.AsyncOptions(post_finalization_callback=self._write_digests),
            multiprocessing_options=ocp.options.MultiprocessingOptions(**hosts),
        )
        try:
            return ocp.CheckpointManager(self.directory, options=options)
        except (ValueError, RecursionError, TypeError, AttributeError) as error:  # of the metadata of any checkpoint
            raise UserError(
                f"{_damaged_metadata(self.directory)}: is damaged ({first_line(error)[:120]}), so no checkpoint can be "
                "opened; restore the file or remove it: nothing needs it."
            ) from error

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._finish("close")
        except UserError:  # the last save failed; an exception that is already raised takes precedence
            if kind is None:
                raise

    def _finish(self, how: str) -> None:
        if self._manager is not None:  # None: this host has saved nothing
            with _writing(self.directory):
                getattr(self._manager, how)()
                if not self._read_only:
                    _remove_path(self.directory.glob(f"*/{COMMITTED}"))

    def save(self, step: int, state: Any, info: dict[str, Any]) -> None:
        """Start to save a pytree of arrays and a JSON `info`, on all hosts together; UserError if it fails."""
        info = json.loads(json.dumps(info))  # a copy: training changes it while orbax writes
        state = to_main(state)
        if not is_main():
            return
        self.wait()
        self._saving = step
        with contextlib.suppress(OSError):  # the directory is in a bucket
            # Without this check, orbax's threads would print pages of errors.
            free, needed = shutil.disk_usage(self.directory).free, sum(leaf.nbytes for leaf in jax.tree.leaves(state))
            if needed > free:
                raise UserError(
                    f"{self.directory}: a checkpoint takes {needed / 1e6:.1f} MB and {free / 1e6:.1f} MB are left on "
                    "the disk; free some space and run the same command again."
                )
        content = ocp.args.Composite(state=ocp.args.PyTreeSave(state), info=ocp.args.JsonSave(info))
        with _writing(self.directory):
            self._manager.save(step, args=content)

    def _write_digests(self) -> None:
        """Write `digests.json`; orbax calls this in its thread before the final rename."""
        name = f"step_{self._saving}"
        folders = [path for path in self.directory.iterdir() if path.name.split(".")[0] == name]
        (folder,) = [path for path in folders if path.name != name] or folders
        _remove_path(folder.glob(f"*/{COMMITTED}"))
        digests = _digests(folder, _listed_files(folder))
        # The digests have a digest, too: else damage to them would look like damage to a file.
        content = {"files": digests, "digest": content_digest(digests)}
        (folder / DIGESTS).write_text(json.dumps(content, indent=1) + "\n")

    def wait(self) -> None:
        """Wait until every save is on disk; UserError if one failed."""
        self._finish("wait_until_finished")

    def restore(self, abstract_state: Any) -> tuple[int, Any, dict[str, Any]] | None:
        """Return step, state and info of the newest undamaged checkpoint, or None; all hosts call this together.

        `abstract_state` are shapes with shardings; leaves `orbax.checkpoint.PLACEHOLDER` are not read. UserError if
        the restore fails, or the newest checkpoint is damaged and `read_only`.
        """
        step = main_decides(self._newest_undamaged)
        if step == _NONE:
            return None
        if is_main():
            self._manager.reload()
        else:
            pull_folder(self.directory / f"step_{step}")
            self._manager = self._open(read_only=True)
        restore_args = ocp.checkpoint_utils.construct_restore_args(abstract_state)
        state = ocp.args.PyTreeRestore(abstract_state, restore_args=restore_args)
        try:
            restored = self._manager.restore(step, args=ocp.args.Composite(state=state, info=ocp.args.JsonRestore()))
        except Exception as error:  # orbax and tensorstore raise many kinds of exceptions
            raise UserError(
                f"{self.directory / f'step_{step}'}: cannot be restored ({named(error)[:300]}), though undamaged; use "
                "the eeg2text_jax that wrote it, or take another --workdir; nothing was changed."
            ) from error
        return step, restored["state"], restored["info"]

    def _newest_undamaged(self) -> int:
        """Return the step of the newest undamaged checkpoint, or `_NONE`; rename the damaged ones newer than it."""
        for step in sorted(self._manager.all_steps() if self._manager else (), reverse=True):
            folder = self.directory / f"step_{step}"
            if (damage := find_damage(folder)) is None:
                return step
            if self._read_only:
                raise UserError(
                    f"{damage}; `eeg2text train` sets the checkpoint aside and resumes from the previous one."
                )
            name = f"damaged_checkpoint_{step}"  # renamed, so that its step can be saved again
            places = (self.directory.parent / (f"{name}_{n}" if n else name) for n in itertools.count())
            folder.rename(next(place for place in places if not place.exists()))
            print(f"{damage}: the checkpoint is set aside; training resumes from an earlier one, or from the start.")
        return _NONE


def find_damage(folder: epath.Path) -> str | None:
    """Return what is damaged in a checkpoint, or None; UserError if it has no digests."""
    listed = folder / DIGESTS
    if not listed.exists():
        raise UserError(
            f"{listed}: there is no such file, so the checkpoint cannot be checked; it was deleted, or an earlier "
            "version wrote none; take another --workdir."
        )
    try:
        content = parse_json(listed.read_bytes())
        expected = dict(content["files"])
        is_damaged = not expected or content["digest"] != content_digest(expected)
    except (ValueError, TypeError, KeyError):
        is_damaged = True
    if is_damaged:
        return f"{listed} is damaged"
    missing = next((name for name in expected if not (folder / name).exists()), None)
    if missing and not expected.keys() >= set(_listed_files(folder)):
        return f"{listed} lists other files than the checkpoint has ({missing} is missing)"
    if missing:
        return f"{folder / missing} is missing"
    digests = _digests(folder, list(expected))
    changed = next((name for name in expected if expected[name] != digests[name]), None)
    return f"{folder / changed} is damaged" if changed else None


def _damaged_metadata(directory: epath.Path) -> epath.Path:
    """Return the first of orbax's metadata files, which have no digests, that is no JSON object; else `directory`."""
    for path in sorted(directory.glob(f"step_*/{_METADATA}")):
        try:
            if not isinstance(parse_json(path.read_bytes()), dict):
                return path
        except ValueError:
            return path
    return directory


def _listed_files(folder: epath.Path) -> list[str]:
    return [name for name in files_below(folder) if name not in (*_CHANGED_LATER, DIGESTS)]


def _digests(folder: epath.Path, names: list[str]) -> dict[str, str]:
    with ThreadPoolExecutor(4) as readers:
        return dict(zip(names, readers.map(lambda name: file_digest(folder / name), names), strict=True))


def _remove_path(notes: Iterable[epath.Path]) -> None:
    """Rewrite orbax's notes without the path on this machine."""
    for note in notes:
        if b"/" in note.read_bytes():
            note.write_text("Checkpoint commit was successful\n")


def _is_not_from_orbax(record: logging.LogRecord) -> bool:
    """Orbax logs 300 lines of traceback for each error that it also raises."""
    return "orbax" not in record.pathname


@contextlib.contextmanager
def _writing(directory: epath.Path) -> Iterator[None]:
    """Turn any exception of orbax into a UserError that names the folder."""
    try:
        yield
    except Exception as error:
        folders = sorted(place for place, _, _ in os.walk(directory))
        closed = next((place for place in folders if not os.access(place, os.W_OK)), None)
        todo = "run the same command again"
        if re.search(r"No space left|RESOURCE_EXHAUSTED|File too large|[Qq]uota exceeded", str(error)):
            todo = f"free space there, and {todo}"
        elif closed:
            todo = f"get write permission there, and {todo}"
        else:
            writer = "if another command writes into this folder (its .lock was removed), wait for it or end it"
            todo = f"{writer}; then {todo}"
        raise UserError(
            f"{closed or directory}: a checkpoint cannot be written, or an old checkpoint cannot be removed "
            f"({first_line(error)[:200]}); {todo}."
        ) from error
