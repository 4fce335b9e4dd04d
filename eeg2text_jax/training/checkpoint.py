"""Checkpoints through orbax: written asynchronously, complete or not there at all.

Order of resuming: the newest checkpoint of the workdir that can be read; a damaged one is said, set aside and
the one before it used; without any, training starts from the configuration.
"""

import logging
import shutil
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath

from eeg2text_jax.errors import UserError, first_line


class Checkpoints:
    """The checkpoints of one workdir, newest two kept. Use as a context manager: leaving waits for the last save."""

    def __init__(self, workdir: str | epath.Path, keep: int = 2):
        logging.getLogger("absl").addFilter(_not_of_orbax)
        self.directory = epath.Path(workdir).resolve() / "checkpoints"
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, create=True, step_prefix="step")
        self._manager = ocp.CheckpointManager(self.directory, options=options)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._manager.close()
        except Exception as error:  # of the last save; where another error is on its way, that one says more
            if kind is None:
                raise _cannot_write(self.directory, error) from error

    def save(self, step: int, state: Any, info: dict[str, Any]) -> None:
        """Begins to save a pytree of arrays and a JSON-able `info` under `step`; returns before it is written.

        Raises:
          UserError: the disk is full or the folder cannot be written.
        """
        self._check_room(state)
        try:
            self._manager.save(
                step, args=ocp.args.Composite(state=ocp.args.StandardSave(state), info=ocp.args.JsonSave(info))
            )
        except Exception as error:  # of many kinds; of this save, or of the one before, which was written meanwhile
            raise _cannot_write(self.directory, error) from error

    def _check_room(self, state: Any) -> None:
        """Before anything is written: orbax's threads leave pages of errors behind when they find out."""
        try:
            free = shutil.disk_usage(self.directory).free
        except OSError:  # no local disk
            return
        needed = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
        if needed > free:
            raise UserError(
                f"{self.directory}: a checkpoint takes {needed / 1e6:.1f} MB and {free / 1e6:.1f} MB are left on the "
                "disk; free some space and start again."
            )

    def wait(self) -> None:
        """Returns when every save is on disk.

        Raises:
          UserError: a save failed.
        """
        try:
            self._manager.wait_until_finished()
        except Exception as error:
            raise _cannot_write(self.directory, error) from error

    def restore(self, abstract_state: Any) -> tuple[int, Any, dict[str, Any]] | None:
        """The newest readable checkpoint as (step, state, info), or None.

        Args:
          abstract_state: pytree of `jax.ShapeDtypeStruct` with shardings, as the state shall come back.
        """
        for step in sorted(self._manager.all_steps(), reverse=True):
            try:
                restored = self._manager.restore(
                    step,
                    args=ocp.args.Composite(
                        state=ocp.args.StandardRestore(abstract_state), info=ocp.args.JsonRestore()
                    ),
                )
            except Exception as error:  # tensorstore and orbax raise many kinds for damage
                reason = first_line(error)[:200]
                self._set_aside(step)
                print(f"checkpoint of step {step} cannot be read ({reason}); it is set aside, trying the one before.")
                continue
            return step, restored["state"], restored["info"]
        return None

    def _set_aside(self, step: int) -> None:
        """Renames a damaged checkpoint out of the way, so that its step can be saved again and nothing is lost."""
        damaged = self.directory / f"step_{step}"
        damaged.rename(self.directory.parent / f"damaged_checkpoint_{step}")
        self._manager.reload()


def _not_of_orbax(record: logging.LogRecord) -> bool:
    """Orbax logs every thread's traceback of an error that it also raises: 300 lines before our sentence."""
    return "orbax" not in record.pathname


def _cannot_write(directory: epath.Path, error: Exception) -> UserError:
    reason = first_line(error)[:200]
    return UserError(f"{directory}: a checkpoint cannot be written ({reason}); free some space and start again.")
