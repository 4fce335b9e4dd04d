"""One writer at any time in a workdir of a bucket: who holds the lease, who may take it, what a late writer does."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import file_digest, replacing, write_text
from eeg2text_jax.base.stores import mirror
from eeg2text_jax.base.stores.buckets import LOCK, StoreError, open_store, parse
from eeg2text_jax.base.stores.mirror import _MIRRORS, mirrored

WRITER = """
import sys, time
from pathlib import Path
from etils import epath
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import remove, replacing, write_text
from eeg2text_jax.base.stores import mirror as lease
from eeg2text_jax.base.stores.mirror import mirrored
place, name, patience = sys.argv[1:]
lease.BEAT, lease.PATIENCE, lease.FRESH = 0.2, float(patience), 0.5
try:
    with mirrored(place) as root:
        for n in range(1000000):
            write_text(Path(root) / "metrics.jsonl", f"{name} {n}")
            with replacing(Path(root) / f"checkpoint_{n}_of_{name}") as partial:
                partial.mkdir()
                for part in "abc":
                    (partial / part).write_text(f"{name} {n}")
            if n > 2:
                remove(epath.Path(root) / f"checkpoint_{n - 2}_of_{name}")
            if n == 1:
                print("works", flush=True)
            if Path(root, "end").exists() or (name == "second" and n == 5):
                break
            time.sleep(0.01)
except UserError as error:
    sys.exit(str(error))
"""


@contextlib.contextmanager
def started(server, place: str, name: str, patience: float, cache: Path):
    """A process that writes into a workdir, under the host name of all others."""
    command = ["unshare", "--uts", sys.executable, "-c", WRITER, place, name, str(patience)]
    environment = {**os.environ, **server.environment, "EEG2TEXT_BUCKET_CACHE": str(cache)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def contents(place: str) -> dict[str, str]:
    bucket, address = open_store(parse(place)), parse(place)
    found = {entry.key: bucket.read(entry.key) for entry in bucket.entries(address.key)}
    return {key.removeprefix(f"{address.key}/"): content[0].decode() for key, content in found.items() if content}


@pytest.mark.quick("two machines-s3")
@pytest.mark.skipif(
    subprocess.run(["unshare", "--uts", "true"], capture_output=True).returncode != 0,
    reason="unshare --uts is refused here",
)
@pytest.mark.parametrize("served", ["s3"], indirect=True)  # the emulator of gs waits for a client that is suspended
@pytest.mark.parametrize("elsewhere", [True, False], ids=["two machines", "one machine"])
def test_a_suspended_writer_never_writes_after_its_lease_was_taken(server, tmp_path, elsewhere):
    """Both processes have one host name; nothing here depends on how fast the machine is."""
    place = server.address(f"lease/{elsewhere}")
    second_cache = tmp_path / ("cache of another machine" if elsewhere else "cache")
    with started(server, place, "first", 30, tmp_path / "cache") as first:
        assert first.stdout.readline() == "works\n", first.stderr.read()
        with started(server, place, "second", 30, second_cache) as refused:
            said = refused.communicate(timeout=300)[1]
        assert refused.returncode == 1
        assert "is in use by process" in said, said
        assert first.poll() is None
        os.kill(first.pid, signal.SIGSTOP)
        begun = time.monotonic()
        with started(server, place, "second", 2, second_cache) as second:
            out, said = second.communicate(timeout=300)
        if not elsewhere:  # it would work in the folder of the suspended one
            assert second.returncode == 1
            assert "It runs on this machine, perhaps suspended" in said
            return
        assert second.returncode == 0, said
        assert "works" in out
        assert time.monotonic() - begun >= 2, "the lease of a suspended process was taken at once"
        before = contents(place)
        assert before["metrics.jsonl"].startswith("second")
        os.kill(first.pid, signal.SIGCONT)
        said = first.communicate(timeout=300)[1]
    assert first.returncode == 1
    assert said.count("\n") == 1, said
    assert "another process took" in said
    assert contents(place) == before
    last = {name: text for name, text in before.items() if "second" in name}
    assert last == {f"checkpoint_{n}_of_second/{part}": f"second {n}" for n in (0, 4, 5) for part in "abc"}


def test_of_two_processes_one_works_and_a_dead_one_is_known_where_it_died(server, tmp_path, monkeypatch):
    place = server.address("who/run")
    key, bucket = parse(place).below(LOCK).key, open_store(parse(place))
    monkeypatch.setattr(mirror, "PATIENCE", 60.0)
    monkeypatch.setattr(mirror, "BEAT", 0.2)
    in_use = pytest.raises(UserError, match=f"who/run: is in use by process {os.getpid()} on ")
    with mirrored(place), in_use, mirrored(place):
        pass
    with started(server, place, "first", 60, tmp_path / "cache") as killed:
        assert killed.stdout.readline() == "works\n", killed.stderr.read()
        held = json.loads(bucket.read(key)[0])
    begun = time.monotonic()
    with mirrored(place):
        assert time.monotonic() - begun < 60
        mine = json.loads(bucket.read(key)[0])
    assert mine["fence"] == held["fence"] + 1
    assert mine["owner"] != held["owner"]
    assert len(mine["owner"]) >= 32
    released = json.loads(bucket.read(key)[0])
    assert (released["fence"], released["owner"]) == (mine["fence"], "")
    with mirrored(place):
        assert json.loads(bucket.read(key)[0])["fence"] == mine["fence"] + 1


def test_who_lost_the_lease_sends_nothing_more(server, monkeypatch):
    place = server.address("lost/run")
    monkeypatch.setattr(mirror, "FRESH", 0.0)
    bucket, key = open_store(parse(place)), parse(place).below(LOCK).key

    def work() -> None:
        with mirrored(place) as root:
            write_text(Path(root) / "x", "1")
            _MIRRORS[-1].settle()
            bucket.put(key, b'{"owner": "of another", "fence": 9}', bucket.read(key)[1])
            with contextlib.suppress(StoreError):
                write_text(Path(root) / "x", "2")
                write_text(Path(root) / "y", "2")

    with pytest.raises(StoreError, match="another process took"):
        work()
    assert contents(place) == {"x": "1", ".lock": '{"owner": "of another", "fence": 9}'}


def test_what_a_former_holder_wrote_late_is_put_right(server, tmp_path, monkeypatch):
    """A request that was on its way when the lease was taken may arrive after it: its objects do not stay."""
    place = server.address("late/run")
    bucket, address = open_store(parse(place)), parse(place)
    late = tmp_path / "late"
    late.write_text("late")
    with mirrored(place) as root:
        for name in ("a", "b", "c"):
            write_text(Path(root) / name, "1")
    with mirrored(place) as root:
        labels = {"fence": "1.former"}
        digest = file_digest(late)
        for name in ("a", "b", "checkpoint/part"):
            bucket.upload(late, address.below(name).key, digest, labels=labels)
        bucket.put(address.below("c_folder/.unfinished").key, b"1.former", None)
        bucket.upload(late, address.below("notes.txt").key, digest)  # somebody's own, who has no lease
        write_text(Path(root) / "a", "2")
        (Path(root) / "c").unlink()
    found = contents(place)
    found.pop(".lock")
    assert found == {"a": "2", "b": "1", "notes.txt": "late"}


def test_what_was_on_its_way_when_the_lease_was_lost_is_taken_back(server, monkeypatch):
    """The process is suspended within the request that makes an object, and goes on when another has the lease."""
    place = server.address("suspended/run")
    monkeypatch.setattr(mirror, "FRESH", 0.0)
    bucket, key = open_store(parse(place)), parse(place).below(LOCK).key
    upload = type(bucket).upload

    def suspended(self, path, name, *rest):
        if name.endswith("checkpoint/b"):
            bucket.put(key, b'{"owner": "of another", "fence": 9}', bucket.read(key)[1])
        return upload(self, path, name, *rest)

    monkeypatch.setattr(type(bucket), "upload", suspended)

    def work() -> None:
        with mirrored(place) as root, replacing(Path(root) / "checkpoint") as partial:
            partial.mkdir()
            for name in "abc":
                (partial / name).write_text("1")

    with pytest.raises(StoreError, match="another process took"):
        work()
    assert contents(place).keys() == {".lock", "checkpoint/.unfinished", "checkpoint/a"}


def test_uploads_compare_first(server, tmp_path):
    """What a late writer meets: the object is no longer the one that it knows."""
    bucket, path = open_store(parse(server.address("x"))), tmp_path / "file"
    path.write_text("1")
    digest = file_digest(path)
    one = bucket.upload(path, "compare", digest, None, {"fence": "1.a"})
    assert one
    assert bucket.head("compare") == (one, {"sha256": digest, "fence": "1.a"})
    assert bucket.upload(path, "compare", digest, None) is None
    path.write_text("2")
    two = bucket.upload(path, "compare", digest, one)
    assert two not in (None, one)
    assert bucket.upload(path, "compare", digest, one) is None
    assert bucket.upload(path, "gone", digest, one) is None
    assert not bucket.delete("compare", one)
    assert bucket.delete("compare", two)
    assert bucket.delete("compare", two)
    assert bucket.head("compare") is None


def test_large_files_go_in_parts_and_compare_first(server, tmp_path, monkeypatch):
    monkeypatch.setattr("eeg2text_jax.base.stores.s3_store.PART", 5 << 20)
    bucket, path = open_store(parse(server.address("x"))), tmp_path / "file"
    content = os.urandom(12 << 20)
    path.write_bytes(content)
    tag = bucket.upload(path, "large", file_digest(path), None)
    assert bucket.read("large") == (content, tag)
    assert bucket.upload(path, "large", file_digest(path), None) is None
