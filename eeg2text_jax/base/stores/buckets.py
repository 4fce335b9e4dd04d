"""Bucket URLs, and the local cache folders of their content."""

import contextlib
import dataclasses
import fcntl
import fnmatch
import glob
import importlib
import itertools
import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Protocol

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import file_digest, flock, parse_json, remove, replacing, write_text
from eeg2text_jax.base.progress import ProgressLine

SCHEMES = {"gs": "gcs", "s3": "s3"}  # scheme -> the pip extra that installs its client
CACHE = "EEG2TEXT_BUCKET_CACHE"  # in the environment: the cache folder
COPIES, RUNS = "copies", "runs"  # subfolders of the cache
_ADDRESS = re.compile(r"(gs|s3)://([^/]*)/?(.*)", re.DOTALL)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")


@dataclasses.dataclass(frozen=True)
class Address:
    """A bucket URL: an object, or the folder of all objects whose names begin with `key/`."""

    scheme: str
    bucket: str
    key: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}"

    def below(self, name: str) -> "Address":
        """Return the URL of `name` in this folder."""
        return dataclasses.replace(self, key=f"{self.key}/{name}" if self.key else name)

    @property
    def copy(self) -> Path:
        """The cache path of a read-only copy; `address_of` is the inverse."""
        return self._cached(COPIES)

    @property
    def run(self) -> Path:
        """The cache folder of a workdir, on the first host."""
        return self._cached(RUNS)

    def run_of(self, host: int) -> Path:
        """Return the cache folder of a workdir on another host, perhaps with the first host's cache."""
        return self._cached(f"{RUNS}_of_host_{host}")

    def _cached(self, kind: str) -> Path:
        return cache_folder() / kind / self.scheme / self.bucket / self.key


def is_address(place: object) -> bool:
    return re.match(r"(gs|s3)://", str(place)) is not None


def parse(place: str) -> Address:
    """Parse a bucket URL; UserError without a bucket, or if a part can be no file name."""
    match = _ADDRESS.fullmatch(str(place))
    if not match or not _BUCKET.fullmatch(match[2]):
        raise UserError(f"{place}: expected gs://BUCKET/PATH or s3://BUCKET/PATH.")
    key = match[3].rstrip("/")
    if "\0" in key or any(not part or part.startswith(".") for part in key.split("/") if key):
        raise UserError(f"{place}: a part of the path is empty, begins with a dot or has a NUL character; rename it.")
    return Address(match[1], match[2], key)


def cache_folder() -> Path:
    """Return `EEG2TEXT_BUCKET_CACHE`, or a folder in the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "eeg2text_jax_buckets"
    return Path(os.environ.get(CACHE) or default).expanduser()


def address_of(path: str | os.PathLike[str]) -> str:
    """Return the bucket URL of a cached path, or the path itself."""
    try:
        inside = Path(path).absolute().relative_to(cache_folder().absolute())
    except ValueError:
        return os.fspath(path)
    kind, scheme, *rest = (*inside.parts, "", "")
    address = f"{scheme}://{'/'.join(filter(None, rest))}"
    is_copy = kind in (COPIES, RUNS) or kind.startswith(f"{RUNS}_of_host_")
    return address if is_copy and scheme in SCHEMES and is_address(address) else os.fspath(path)


# Objects are read and written as a whole. A bucket that does not answer is an error after about two minutes.

SECONDS = "EEG2TEXT_BUCKET_SECONDS"  # in the environment: timeout of one attempt
ATTEMPTS = 4  # of a request
DIGEST = "sha256"  # metadata key: the SHA-256 of an object
FENCE = "fence"  # metadata key: the label of its writer's lease
LOCK = ".lock"  # the lease object of a workdir, see `mirror.Lease`
ANY = "any content, or none"  # in place of a tag: an unconditional request

Advance = Callable[[int], object]


class StoreError(UserError):
    """The bucket refused a request or did not answer; the same command resumes."""

    @classmethod
    def no_access(cls, place: str, why: str) -> "StoreError":
        return cls(f"{place}: the credentials give no access ({why}); check them and the permissions of the bucket.")

    @classmethod
    def no_bucket(cls, place: str) -> "StoreError":
        return cls(f"{place}: there is no such bucket; create it, or check its name.")

    @classmethod
    def no_answer(cls, place: str, why: str) -> "StoreError":
        return cls(f"{place}: does not answer ({why[:160]}); check the network, then the same command resumes.")


class Entry(NamedTuple):
    key: str  # the full name
    size: int  # bytes
    tag: str  # changes with the content


class Store(Protocol):
    """A bucket; every method may raise `StoreError`."""

    def entries(self, prefix: str) -> list[Entry]:
        """List objects whose names begin with `prefix`."""

    def head(self, key: str) -> tuple[str, dict[str, str]] | None:
        """Return tag and metadata of an object, or None."""

    def read(self, key: str) -> tuple[bytes, str] | None:
        """Return content and tag of a small object, or None."""

    def download(self, key: str, path: Path, advance: Advance) -> str | None:
        """Write an object to a file; return any SHA-256 in its metadata."""

    def upload(
        self, path: Path, key: str, digest: str, over: str | None = ANY, labels: Mapping[str, str] | None = None
    ) -> str | None:
        """Upload a file, atomically, if the object's tag is `over` (None: there is no object).

        Return the new tag, or None if nothing was written. Metadata are the SHA-256 `digest` and `labels`.
        """

    def put(self, key: str, content: bytes, over: str | None) -> str | None:
        """Write a small object, as `upload`."""

    def delete(self, key: str, over: str = ANY) -> bool:
        """Remove an object if it exists; return False if its tag is not `over`."""


def open_store(address: Address) -> Store:
    """Return the bucket of a URL without a request; equal settings share a client.

    UserError without the client's package, or credentials.
    """
    extra = SCHEMES[address.scheme]
    settings = {name: value for name, value in os.environ.items() if name.startswith(_SETTINGS)}
    key = (address.scheme, address.bucket, *sorted(settings.items()))
    if key not in _CLIENTS:
        try:
            module = importlib.import_module(f"eeg2text_jax.base.stores.{extra}_store")
        except ImportError as error:
            raise UserError(
                f"{address}: reading and writing {address.scheme}:// needs {error.name}, which is not installed; run "
                f"pip install 'eeg2text_jax[{extra}]'."
            ) from error
        _CLIENTS[key] = module.open_bucket(address.bucket)
    return _CLIENTS[key]


_CLIENTS: dict[tuple[object, ...], Store] = {}
_SETTINGS = ("AWS_", "GOOGLE_", "STORAGE_EMULATOR", SECONDS)  # prefixes of environment variables that configure clients


def seconds() -> float:
    """Return the timeout of one attempt; UserError if it is out of range."""
    stated = os.environ.get(SECONDS, "30")
    with contextlib.suppress(ValueError):
        if 0 < (number := float(stated)) <= 3600:
            return number
    raise UserError(f"{SECONDS}={stated}: expected seconds, above 0 and at most 3600.")


@contextlib.contextmanager
def translate_errors(place: str, translate: Callable[[str, Exception], StoreError | None]) -> Iterator[None]:
    """For an exception of a client, raise `translate(place, error)`, or the exception itself if that is None."""
    try:
        yield
    except Exception as error:
        if (message := translate(place, error)) is None:
            raise
        raise message from error


# The first host mirrors a workdir in a bucket, under a lease. The others have copies (`follow`), which
# `hosts.main_first` updates; a checkpoint is downloaded (`pull_folder`) when it is restored.

UNFINISHED = ".unfinished"  # marker object of a folder that is being written or removed
MEGABYTE = 1 << 20
WORTH_A_LINE = 16 * MEGABYTE  # bytes from which a download shows its progress
ON_REQUEST = ("checkpoints", "tensorboard")  # left out by `pull_all`, at any depth
_AT_ONCE = 4  # parallel downloads

Stamp = list[int]  # see `stamp_of`; another version of a file has another


def stamp_of(path: Path) -> Stamp:
    """Return modification time (ns), size and inode of a local file."""
    state = path.stat()
    return [state.st_mtime_ns, state.st_size, state.st_ino]


class Notes:
    """A JSON file that says which files of a folder equal objects of the bucket."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._path = cache_folder() / "notes" / f"{'%'.join(folder.relative_to(cache_folder()).parts)}.json"
        self.versions: dict[str, tuple[Stamp, str]] = {}  # file name -> its stamp, tag of the equal object
        with contextlib.suppress(OSError, ValueError):
            self.versions = {name: (stamp, tag) for name, (stamp, tag) in parse_json(self._path.read_text()).items()}

    def is_current(self, name: str, tag: str) -> bool:
        with contextlib.suppress(OSError):
            return self.versions.get(name) == (stamp_of(self.folder / name), tag)
        return False

    def write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self._path, json.dumps(self.versions))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Let one process at a time download to the folder."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_suffix(".lock").open("w") as file:
            flock(file.fileno(), str(self.folder), fcntl.LOCK_EX)
            yield


class Files(dict[str, Entry]):
    """The objects below a URL, by relative name; "" if the URL is an object."""

    @classmethod
    def of(cls, store: Store, address: Address) -> "Files":
        """List the objects below a URL; UserError for a name that leads out of a folder."""
        # Objects whose names end with a slash are empty "folders".
        entries = [entry for entry in store.entries(address.key) if not entry.key.endswith("/")]
        start = f"{address.key}/" if address.key else ""
        files = cls({entry.key.removeprefix(start): entry for entry in entries if entry.key.startswith(start)})
        for name, entry in files.items():
            if any(part in ("", ".", "..") or "\0" in part for part in name.split("/")):
                raise UserError(
                    f"{address}: the object {entry.key!r} cannot be the name of a file in a folder, as a part is "
                    "empty, '.' or '..', or has a NUL; nothing was copied; rename the object or remove it."
                )
        files.update(("", entry) for entry in entries if entry.key == address.key)
        return files

    def finished(self) -> "Files":
        """Return the objects but for the lease and unfinished folders."""
        unfinished = tuple(name.removesuffix(UNFINISHED) for name in self if name.endswith(f"/{UNFINISHED}"))
        return self.select(lambda name: not name.startswith(unfinished) and name.rpartition("/")[2] != LOCK)

    def select(self, is_wanted: Callable[[str], bool]) -> "Files":
        return Files({name: entry for name, entry in self.items() if is_wanted(name)})


def download(store: Store, files: Files, notes: Notes, title: str) -> int:
    """Download `files` that are not current; return their number; StoreError for a wrong checksum."""
    wanted = [(name, entry) for name, entry in files.items() if not notes.is_current(name, entry.tag)]
    total = sum(entry.size for _, entry in wanted)
    with _progress(title, total) as advance, ThreadPoolExecutor(_AT_ONCE) as workers:
        jobs = [workers.submit(_download_one, store, entry, notes.folder / name, advance) for name, entry in wanted]
        try:
            for (name, entry), job in zip(wanted, jobs, strict=True):
                notes.versions[name] = (job.result(), entry.tag)
        finally:
            workers.shutdown(cancel_futures=True)
            if wanted:
                notes.write()
    return len(wanted)


@contextlib.contextmanager
def _progress(title: str, total: int) -> Iterator[Advance]:
    """Yield a thread-safe function that counts bytes, and shows MB of a large `total`."""
    if total < WORTH_A_LINE:
        yield lambda size: None
        return
    lock, seen = threading.Lock(), [0]
    with ProgressLine(f"{title}, MB", total // MEGABYTE) as line:

        def advance(size: int) -> None:
            with lock:
                before, seen[0] = seen[0], seen[0] + size
                if units := seen[0] // MEGABYTE - before // MEGABYTE:
                    line.advance(units)

        yield advance


def _download_one(store: Store, entry: Entry, path: Path, advance: Advance) -> Stamp:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        stated = store.download(entry.key, Path(partial), advance)
        size = partial.stat().length
        if size != entry.size or (stated and stated != file_digest(partial)):
            raise StoreError(
                f"{entry.key}: {size} bytes arrived, which differ in their {'SHA-256' if stated else 'number'} from "
                f"the {entry.size} bytes written there; run the command again, or restore the object."
            )
    return stamp_of(path)


def sweep(folder: Path, keep: Files, pattern: str) -> None:
    """Remove files below `folder` that match `pattern` but are not in `keep`, and empty folders."""
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(place) / name
            below = path.relative_to(folder).as_posix()
            if below not in keep and _is_matched(below, pattern) and name != ".lock":
                path.unlink()
        if Path(place) != folder:
            with contextlib.suppress(OSError):
                os.rmdir(place)


def _is_matched(name: str, pattern: str) -> bool:
    """Return whether a glob pattern matches a file or a folder of it; `*` matches no `/`, `**` does."""
    if "**" in pattern:
        return fnmatch.fnmatchcase(name, pattern)
    parts, wanted = name.split("/"), pattern.split("/")
    return len(parts) >= len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def at_hand(place: str | os.PathLike[str]) -> str:
    """Return a local path as it is, and the path of a copy of a bucket's file, folder or glob.

    Unchanged files are not copied again. UserError if nothing is there, or the bucket cannot be read.
    """
    place = os.fspath(place)
    if not is_address(place):
        return place
    address = parse(place)
    parts = address.key.split("/")
    fixed = list(itertools.takewhile(lambda part: not glob.has_magic(part), parts))
    pattern = "/".join(parts[len(fixed) :])  # from the first glob on
    address = dataclasses.replace(address, key="/".join(fixed))
    if any(address.run.is_relative_to(root) for root in OPEN):
        return str(address.run / pattern)
    files = Files.of(open_store(address), address).finished()
    if pattern:
        files = files.select(lambda name: _is_matched(name, pattern))
    if not files:
        raise UserError(f"{place}: there is nothing at this address; check the address.")
    if "" in files:
        files = files.select(lambda name: not name)
    refresh(address, files, Notes(address.copy), pattern=pattern or "*")
    return str(address.copy / pattern)


OPEN: set[Path] = set()  # local folders of workdirs that this process mirrors, newer than the bucket


def refresh(address: Address, there: Files, notes: Notes, wanted: Files | None = None, pattern: str = "*") -> int:
    """Download changed objects to the folder of `notes`; remove files of `pattern` that are not in the bucket.

    Of the finished objects `there`, `wanted` are downloaded (None: all). Return their number.
    """
    folder = notes.folder
    with notes.lock():
        if folder.exists() and folder.is_dir() == ("" in there):
            remove(folder)  # a folder became an object, or an object a folder
        if "" not in there:
            folder.mkdir(parents=True, exist_ok=True)
            sweep(folder, there, pattern)  # first, as a file's name may have become a folder's
        notes.versions = {
            name: it for name, it in notes.versions.items() if name in there or not _is_matched(name, pattern)
        }
        return download(open_store(address), there if wanted is None else wanted, notes, f"copying {address}")


_FOLLOWED: list[tuple[Address, Path]] = []  # the first host's workdir, and its copy here


def follow(place: str, host: int) -> Path:
    """Return the folder for this host's copy of a workdir that the first host mirrors."""
    address = parse(place)
    _FOLLOWED[:] = [(address, address.run_of(host))]
    return address.run_of(host)


def pull_all() -> None:
    """Update this host's copy of the workdir, but for `ON_REQUEST`. Raises StoreError."""
    _pull("", ON_REQUEST)


def pull_folder(path: str | os.PathLike[str]) -> None:
    """Update one folder of this host's copy; ignore a `path` outside of it. Raises StoreError."""
    place = Path(path).resolve()
    for root in (folder.resolve() for _, folder in _FOLLOWED if place.is_relative_to(folder.resolve())):
        _pull(f"{place.relative_to(root).as_posix()}/")


def _pull(start: str, left_out: Sequence[str] = ()) -> None:
    for address, folder in _FOLLOWED:
        there = Files.of(open_store(address), address).finished().select(bool)
        wanted = there.select(lambda name: name.startswith(start) and not set(left_out) & set(name.split("/")))
        refresh(address, there, Notes(folder), wanted)
