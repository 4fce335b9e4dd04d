"""A workdir in a bucket as a host sees it that is not the first: a local copy, which only the first host changes.

The first host mirrors the workdir and holds its lease. The others download what it has uploaded whenever
`distributed.main_first` ends. A checkpoint is large, so it is downloaded only by the call that restores it.
"""

import os
from pathlib import Path

from eeg2text_jax.stores import copying
from eeg2text_jax.stores.address import parse
from eeg2text_jax.stores.copying import Files, Notes
from eeg2text_jax.stores.store import open_store

ON_REQUEST = ("checkpoints", "tensorboard")  # folders, at any depth, that `pull` leaves out


class Follower:
    """Download a workdir that another host changes.

    Args:
      place: the workdir's URL.
      host: the number of this host.
    """

    def __init__(self, place: str, host: int):
        self._address = parse(place)
        self._store, self.folder = open_store(self._address), self._address.run_of(host)

    def pull(self) -> None:
        """Make the folder equal to the finished files in the bucket, without new checkpoints.

        Raises:
          StoreError: the bucket cannot be read.
        """
        there = self._finished()
        self._take(Files({name: it for name, it in there.items() if not set(ON_REQUEST) & set(name.split("/"))}), there)

    def pull_folder(self, folder: str | os.PathLike[str]) -> None:
        """Download one folder of the workdir; a folder of another place is left alone.

        Raises:
          StoreError: the bucket cannot be read.
        """
        root, folder = self.folder.resolve(), Path(folder).resolve()
        if folder.is_relative_to(root):
            start, there = f"{folder.relative_to(root).as_posix()}/", self._finished()
            self._take(Files({name: it for name, it in there.items() if name.startswith(start)}), there)

    def _finished(self) -> Files:
        there = Files.of(self._store, self._address).finished()
        return Files({name: entry for name, entry in there.items() if name})

    def _take(self, wanted: Files, there: Files) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        notes = Notes(self.folder)
        with notes.held():
            copying.sweep(self.folder, there)
            notes.known = {name: known for name, known in notes.known.items() if name in there}
            copying.take(self._store, wanted, self.folder, notes, f"copying {self._address}")


_FOLLOWERS: list[Follower] = []  # of this process


def follow(place: str, host: int) -> Path:
    """Return the folder of this host for a workdir in a bucket, and keep it up to date from now on."""
    _FOLLOWERS[:] = [Follower(place, host)]
    return _FOLLOWERS[0].folder


def pull_all() -> None:
    """Download what the first host has uploaded."""
    for follower in _FOLLOWERS:
        follower.pull()


def pull_folder(folder: str | os.PathLike[str]) -> None:
    """Download a folder that the first host has uploaded, such as a checkpoint."""
    for follower in _FOLLOWERS:
        follower.pull_folder(folder)
