"""A folder that is mirrored in a bucket, held against servers that we did not write: moto's S3, an emulator of GCS."""

import glob
import json
import os
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import file_digest, notify, remove, replacing, write_text
from eeg2text_jax.base.stores import buckets, mirror
from eeg2text_jax.base.stores import mirror as sending
from eeg2text_jax.base.stores.buckets import UNFINISHED, Files, StoreError, address_of, at_hand, open_store, parse
from eeg2text_jax.base.stores.mirror import mirrored
from eeg2text_jax.commands import cli

pytest.importorskip("moto", reason="the extra `test` brings a server of S3")
from eeg2text_jax.base.stores import s3_store
from eeg2text_testing.bucket_servers import BUCKET, s3_client


def names(place: str) -> dict[str, int]:
    """What is there but for the lease."""
    found = Files.of(open_store(parse(place)), parse(place))
    return {name: entry.size for name, entry in found.items() if name != buckets.LOCK}


def content(place: str, name: str) -> bytes | None:
    found = open_store(parse(place)).read(parse(place).below(name).key)
    return found and found[0]


def test_what_is_finished_is_in_the_bucket(server, tmp_path, monkeypatch):
    place = server.address("a/run")
    with mirrored(place) as root:
        root = Path(root)
        assert address_of(root / "x.json") == f"{place}/x.json"
        for n in range(5):
            write_text(root / "config.json", f'{{"n": {n}}}')
        with replacing(root / "tokenizer") as partial:
            partial.mkdir()
            (partial / "vocab").write_bytes(os.urandom(3 << 20))  # of a size that is linked, not copied
            (partial / "merges").write_text("m")
        (root / ".hidden.partial").write_text("not finished")
        (root / ".tokenizer.partial").mkdir()
        (root / ".tokenizer.partial/vocab").write_text("not finished")
        (root / "checkpoints/step_2.orbax-checkpoint-tmp").mkdir(parents=True)
        (root / "checkpoints/step_2.orbax-checkpoint-tmp/part").write_text("not finished")
        vocab = (root / "tokenizer/vocab").read_bytes()
        assert glob.glob(at_hand(f"{place}/tokenizer/v*")) == [str(root / "tokenizer/vocab")]
        assert at_hand(f"{place}/config.json") == str(root / "config.json")
    assert content(place, "config.json") == b'{"n": 4}'
    assert names(place).keys() == {"config.json", "tokenizer/vocab", "tokenizer/merges"}

    monkeypatch.setenv("EEG2TEXT_BUCKET_CACHE", str(tmp_path / "elsewhere"))
    with mirrored(place) as root:
        root = Path(root)
        assert (root / "tokenizer/vocab").read_bytes() == vocab
        remove(root / "tokenizer")
        (root / "config.json").unlink()
        write_text(root / "results.json", "{}")
    assert names(place).keys() == {"results.json"}
    assert not list((tmp_path / "elsewhere/spool").iterdir())


def test_changes_arrive_in_their_order(server, monkeypatch):
    """The bucket is at any time what the folder was a moment ago, though sending is slow."""
    place, states = server.address("b/run"), []
    send = sending.Sender.send

    def slow(self, change):
        time.sleep(0.02)
        send(self, change)
        states.append({name: content(place, name) for name in ("one", "two")})

    monkeypatch.setattr(sending.Sender, "send", slow)
    expected = []
    with mirrored(place) as root:
        for n in range(6):
            for name in ("one", "two"):
                write_text(Path(root) / name, str(n))
                expected.append((expected[-1] if expected else {"one": None, "two": None}) | {name: str(n).encode()})
    assert states == expected


def test_what_is_appended_to_is_sent_at_intervals_and_at_the_end(server):
    place = server.address("l/run")
    with mirrored(place) as root:
        for _ in range(5):
            with (Path(root) / "metrics.jsonl").open("a") as file:
                file.write("x" * mirror.LINKED + "\n")  # of a size that other files are linked at
            notify()
        whole = (Path(root) / "metrics.jsonl").read_bytes()
        assert len(content(place, "metrics.jsonl") or b"") < len(whole)
    assert content(place, "metrics.jsonl") == whole


def test_a_file_that_is_appended_to_arrives_before_what_is_finished_after_it(server):
    """A record of its digest, say: a run that is killed then must not find a record of lines that are not there."""
    place = server.address("r/run")
    with mirrored(place) as root:
        metrics = Path(root) / "metrics.jsonl"
        for n in range(5):
            with metrics.open("a") as file:
                file.write(f"{n}\n")
            notify()
            write_text(Path(root) / "finished.json", metrics.read_text())
            while content(place, "finished.json") != metrics.read_bytes():
                time.sleep(0.01)
            assert content(place, "metrics.jsonl") == metrics.read_bytes()


def test_a_folder_cut_short_counts_as_absent(server, monkeypatch):
    place = server.address("c/run")
    with mirrored(place) as root:
        write_text(Path(root) / "config.json", "{}")
    upload = type(open_store(parse(place))).upload

    def dies(self, path, key, *rest):
        if key.endswith("/last"):
            raise KeyError("as if killed")
        return upload(self, path, key, *rest)

    def make() -> None:
        with mirrored(place) as root, replacing(Path(root) / "checkpoint") as partial:
            partial.mkdir()
            (partial / "first").write_text("1")
            (partial / "last").write_text("2")

    with monkeypatch.context() as patch:
        patch.setattr(type(open_store(parse(place))), "upload", dies)
        with pytest.raises(KeyError):
            make()
    assert f"checkpoint/{UNFINISHED}" in names(place)
    with mirrored(place) as root:
        assert sorted(path.name for path in Path(root).iterdir()) == ["config.json"]
    assert names(place).keys() == {"config.json"}


def test_more_changes_than_may_wait_are_all_sent(server, monkeypatch):
    monkeypatch.setattr(mirror, "MOST_WAITING", 2)
    place = server.address("m/run")
    with mirrored(place) as root:
        for n in range(40):
            write_text(Path(root) / f"{n % 9}", str(n))
    assert {content(place, str(n)) for n in range(9)} == {str(n).encode() for n in range(31, 40)}


def test_copies_are_held_against_their_checksum_and_kept(server, tmp_path, monkeypatch, capsys):
    place = server.address("e/table.bin")
    source = tmp_path / "source"
    source.write_bytes(os.urandom(20 << 20))
    bucket, key = open_store(parse(place)), parse(place).key
    bucket.upload(source, key, file_digest(source))
    copy = Path(at_hand(place))
    assert copy.read_bytes() == source.read_bytes()
    assert "e/table.bin, MB: 20/20" in capsys.readouterr().out
    before = copy.stat()
    assert Path(at_hand(place)).stat() == before, "was copied again"
    folder = at_hand(server.address("e"))
    assert (Path(folder) / "table.bin").read_bytes() == source.read_bytes()
    assert at_hand(server.address("e/*.bin")).endswith("e/*.bin")

    bucket.upload(source, key, "0" * 64)
    with pytest.raises(UserError, match=r"e/table\.bin: .* which differ in their SHA-256 from the "):
        at_hand(place)
    with pytest.raises(UserError, match="nothing at this address"):
        at_hand(server.address("e/other"))


OUTSIDE = ("/home/u/x", "../victim/x", "../../../../x", "a/../../../x", "a//x", "./x", "a/./x", "..", "a/..", "x\0y")


class Listed:
    """A bucket with objects of these names."""

    def __init__(self, *keys: str):
        self._keys = keys

    def entries(self, prefix: str) -> list[buckets.Entry]:
        return [buckets.Entry(key, 1, "tag") for key in self._keys if key.startswith(prefix)]


@pytest.mark.parametrize("scheme", ["s3", "gs"])
@pytest.mark.parametrize("place", ["data", ""])
def test_names_that_leave_their_folder(scheme, place):
    address = parse(f"{scheme}://{BUCKET}/{place}")
    for name in OUTSIDE:
        with pytest.raises(UserError, match="cannot be the name of a file") as caught:
            Files.of(Listed("data/good", address.below(name).key), address)
        assert repr(address.below(name).key) in str(caught.value)
        assert "\n" not in str(caught.value)
    inside = ("..x", "x..", ".hidden", "a/.b", "...", "a b/\u00fc", "C:\\x")
    kept = Files.of(Listed(*(address.below(name).key for name in (*inside, "empty/"))), address)
    assert kept.keys() == set(inside)
    assert Files.of(Listed("data/", "data/a", "data2/../x"), parse(f"{scheme}://{BUCKET}/data")).keys() == {"a"}


@pytest.mark.parametrize("name", ["/HERE/victim", "../../victim/x"])
def test_nothing_is_written_where_a_name_leaves_its_folder(server, tmp_path, refused, name):
    name = name.replace("/HERE", str(tmp_path))
    if server.scheme == "gs":
        name = name.replace("..", "/")  # the emulator takes no other; the test above has them
    source = tmp_path / "source"
    source.write_text("overwritten")
    place = server.address(f"out{name.count('.')}")
    bucket, start = open_store(parse(place)), parse(place).key
    for key in (f"{start}/a.jsonl", f"{start}/{name}"):
        bucket.upload(source, key, file_digest(source))
    assert f"{start}/{name}" in {entry.key for entry in bucket.entries(start)}, "the server has another name"
    cache = [tmp_path / "cache", tmp_path / "cache/owners"]  # folders of our own, in which nothing may stay
    before = sorted([*tmp_path.rglob("*"), *cache])
    for arguments in (["score", place], ["score", f"{place}/*.jsonl"], ["prepare", place, "--out=o.h5"]):
        assert "cannot be the name of a file" in refused(arguments)
    with pytest.raises(UserError, match="cannot be the name of a file"), mirrored(place):
        pass
    assert sorted({*tmp_path.rglob("*"), *cache}) == before
    for entry in bucket.entries(start):
        bucket.delete(entry.key)


def test_a_copy_has_nothing_that_was_deleted(server, tmp_path):
    """A glob matches what the bucket has now; what it does not match stays as it was copied."""
    source = tmp_path / "source"
    source.write_text("x")
    place = server.address("h")
    bucket = open_store(parse(place))

    def put(name: str) -> None:
        bucket.upload(source, parse(place).below(name).key, file_digest(source))

    def copied(address: str) -> list[str]:
        return sorted(Path(path).relative_to(parse(place).copy).as_posix() for path in glob.glob(at_hand(address)))

    for name in ("a.npz", "b.npz", "notes.txt", "s1/x.npz", "s2/x.npz"):
        put(name)
    assert copied(f"{place}/*.npz") == ["a.npz", "b.npz"]
    assert copied(f"{place}/s*/x.npz") == ["s1/x.npz", "s2/x.npz"]
    at_hand(place)
    for name in ("b.npz", "s2/x.npz", "notes.txt"):
        bucket.delete(parse(place).below(name).key)
    assert copied(f"{place}/*.npz") == ["a.npz"]
    assert (parse(place).copy / "notes.txt").exists()
    assert copied(f"{place}/s*") == ["s1"]
    at_hand(place)
    assert names(place).keys() == {"a.npz", "s1/x.npz"}
    assert not (parse(place).copy / "notes.txt").exists()
    bucket.delete(parse(place).below("a.npz").key)
    with pytest.raises(UserError, match="nothing at this address"):
        at_hand(f"{place}/*.npz")


def test_a_name_may_become_a_folder_and_a_file_again(server, tmp_path):
    source = tmp_path / "source"
    source.write_text("x")
    place = server.address("i")
    bucket = open_store(parse(place))
    for name in ("a", "a/b", "a"):
        bucket.upload(source, parse(place).below(name).key, file_digest(source))
        assert (Path(at_hand(place)) / name).read_text() == "x"
        assert Path(at_hand(f"{place}/a")).is_dir() == (name == "a/b")
        bucket.delete(parse(place).below(name).key)


def test_commands_read_and_write_addresses(server, tmp_path, refused, printed_by):
    data, out = server.address("f/data.h5"), server.address("f/split.json")
    fields = ["--config.data.synthetic.sentences=20", "--config.data.synthetic.features=4"]
    assert cli.main(["prepare", "synthetic", f"--out={data}", *fields]) == 0
    assert cli.main(["split", data, f"--json={out}"]) == 0
    assert f"sent to {data}" in printed_by(["check", data])
    assert json.loads(content(server.address("f"), "split.json"))["parts"]
    said = refused(["score", server.address("f/nothing.jsonl")])
    assert f"{server.scheme}://{BUCKET}/f/nothing.jsonl: there is nothing" in said


def test_an_export_goes_to_an_empty_place_alone(server, tmp_path, refused):
    source = tmp_path / "source"
    source.write_text("x")
    place = server.address("taken")
    open_store(parse(place)).upload(source, parse(place).below("a").key, file_digest(source))
    assert f"{place}: exists already and is not empty" in refused(["export", "--workdir=nowhere", f"--out={place}"])
    assert content(place, "a") == b"x"


def test_an_object_that_is_gone_is_deleted_whatever_its_name(monkeypatch):
    gcs = pytest.importorskip("eeg2text_jax.base.stores.gcs_store", reason="the extra `test` brings it")

    class Blob:
        def __init__(self, key):
            self.key = key

        def delete(self, **_):
            missing = "The specified bucket does not exist." if self.key == "lost" else f"No such object: b/{self.key}"
            raise gcs.exceptions.NotFound(missing)

    client = SimpleNamespace(bucket=lambda name: SimpleNamespace(blob=Blob))
    store = gcs.GCSStore("b", client)
    assert store.delete("bucket.txt")
    with pytest.raises(UserError, match="no such bucket"):
        store.delete("lost")


def test_sentences_about_what_cannot_be_opened(server, monkeypatch, refused):
    def said(place: str) -> str:
        return refused(["prepare", "synthetic", f"--out={place}"])

    assert "there is no such bucket" in said(f"{server.scheme}://another-bucket/data.h5")
    assert "expected gs://BUCKET/PATH or s3://BUCKET/PATH" in said(f"{server.scheme}://B/data.h5")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "boto3" if server.scheme == "s3" else "google.cloud", None)
        patch.setattr(buckets, "_CLIENTS", {})
        for module in ("s3_store", "gcs_store"):
            patch.delitem(sys.modules, f"eeg2text_jax.base.stores.{module}", raising=False)
        extra = "s3" if server.scheme == "s3" else "gcs"
        assert f"pip install 'eeg2text_jax[{extra}]'" in said(server.address("data.h5"))
    monkeypatch.setenv("EEG2TEXT_BUCKET_SECONDS", "0.2")
    monkeypatch.setattr(s3_store, "ATTEMPTS", 1)
    (name,) = (name for name, value in server.environment.items() if "http" in value)
    monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens there
    assert "does not answer" in said(server.address("data.h5"))
    with socket.create_server(("127.0.0.1", 0)) as hangs:  # takes connections, and says nothing
        monkeypatch.setenv(name, f"http://127.0.0.1:{hangs.getsockname()[1]}")
        begun = time.monotonic()
        assert "does not answer" in said(server.address("data.h5"))
        assert time.monotonic() - begun < 30


@pytest.mark.parametrize("served", ["s3"], indirect=True)
def test_no_credentials(server, monkeypatch, refused):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "none")
    assert "the credentials give no access" in refused(["prepare", "synthetic", f"--out={server.address('data.h5')}"])


@pytest.mark.parametrize("served", ["s3"], indirect=True)
def test_a_bucket_that_disappears_ends_the_work_and_keeps_what_was_finished(server, capsys):
    place = server.address("g/run")
    client = s3_client(server.environment)

    def work() -> None:
        with mirrored(place) as root:
            write_text(Path(root) / "config.json", "{}")
            mirror._MIRRORS[0].settle()
            for entry in open_store(parse(place)).entries(""):
                client.delete_object(Bucket=BUCKET, Key=entry.key)
            client.delete_bucket(Bucket=BUCKET)
            for n in range(200):
                write_text(Path(root) / "metrics.jsonl", str(n))
                time.sleep(0.02)

    with pytest.raises(StoreError, match="there is no such bucket") as caught:
        work()
    assert "\n" not in str(caught.value)
    client.create_bucket(Bucket=BUCKET)
    with mirrored(place) as root:
        write_text(Path(root) / "config.json", "{}")
    assert names(place).keys() == {"config.json"}
