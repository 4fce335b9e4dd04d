"""Upload the changes of a folder to a bucket, under a lease.

An object is replaced only if it equals the version that this process last wrote or read, and only under a recently
confirmed lease. So a process whose lease was taken while it was suspended changes nothing that the next holder wrote.
If a late request of such a process creates an object, that process or the next holder removes the object.
"""

from pathlib import Path
from typing import NamedTuple

from eeg2text_jax.files import file_digest
from eeg2text_jax.stores.address import Address
from eeg2text_jax.stores.copying import UNFINISHED, Files, Notes, Stamp
from eeg2text_jax.stores.lease import Lease
from eeg2text_jax.stores.store import ANY, DIGEST, FENCE, LOCK, Entry, Store, StoreError

TRIES = 5  # attempts of an upload while another program changes the object


class Change(NamedTuple):
    """Files that were written or removed as a unit."""

    unit: str  # the folder that contains them, marked during the change; "" for a single file
    put: tuple[tuple[str, Path, Stamp], ...]  # written files: name, snapshot to upload, stamp of the original
    gone: tuple[str, ...]  # names of removed files


class Sender:
    """Uploads changes by conditional requests. `notes` has the tag of each object that was written or read."""

    def __init__(self, address: Address, store: Store, folder: Path, lease: Lease, notes: Notes):
        self._address, self._store, self._folder, self._lease, self._notes = address, store, folder, lease, notes

    def send(self, change: Change) -> None:
        """Upload one change. Raises StoreError if the lease is lost or the bucket does not answer."""
        marker, tag = self._address.below(f"{change.unit}/{UNFINISHED}").key, None
        self._lease.confirm()
        if change.unit:
            tag = self._store.put(marker, self._lease.label.encode(), None)
            self._check_late(marker, tag)
        for name, path, stamp in change.put:
            self._notes.known[name] = (stamp, self._upload(name, path))
            path.unlink()
        for name in change.gone:
            self._remove(name)
        if change.unit:
            found = self._store.head(marker)
            self._lease.confirm()
            self._store.delete(marker, tag or (found[0] if found else ANY))
        self._notes.write()

    def _check_late(self, key: str, tag: str | None) -> None:
        """If the lease is lost, remove the object with this tag, which was created too late, and raise StoreError."""
        try:
            self._lease.confirm()
        except StoreError:
            if tag and self._lease.lost:
                self._store.delete(key, tag)
            raise

    def _upload(self, name: str, path: Path) -> str:
        """Upload a file over the version of the object that `notes` has; return the new tag."""
        key, over = self._address.below(name).key, self._notes.known.get(name, (None, None))[1]
        labels = {DIGEST: file_digest(path), FENCE: self._lease.label}
        for _ in range(TRIES):
            self._lease.confirm()
            tag = self._store.upload(path, key, labels[DIGEST], over, {FENCE: labels[FENCE]})
            if tag is not None:
                self._check_late(key, None if over else tag)
                return tag
            found = self._store.head(key)
            if found and found[1] == labels:
                return found[0]  # an earlier attempt succeeded, but its answer was lost
            self._lease.confirm(now=True)
            over = found and found[0]  # written by a late request of a former holder, or by hand
        raise StoreError(
            f"{self._address.below(name)}: another program writes this object again and again; end that program."
        )

    def _remove(self, name: str) -> None:
        key, known = self._address.below(name).key, self._notes.known.pop(name, None)
        self._lease.confirm()
        while known and not self._store.delete(key, known[1]):
            self._lease.confirm(now=True)
            known = (known[0], found[0]) if (found := self._store.head(key)) else None

    def undo_late(self) -> None:
        """Undo changes that former holders made after this process took the lease; call it after all uploads."""
        for name, entry in Files.of(self._store, self._address).items():
            known = self._notes.known.get(name)
            if name.rpartition("/")[2] == LOCK or (known and known[1] == entry.tag) or not self._is_late(entry):
                continue
            self._lease.confirm()
            if known:
                self._notes.known[name] = (known[0], self._upload(name, self._folder / name))
            else:
                self._store.delete(entry.key, entry.tag)
        self._notes.write()

    def _is_late(self, entry: Entry) -> bool:
        if entry.key.endswith(f"/{UNFINISHED}"):
            return True  # the marker of another process, as this one has completed its changes
        found = self._store.head(entry.key)
        return found is not None and found[1].get(FENCE, self._lease.label) != self._lease.label
