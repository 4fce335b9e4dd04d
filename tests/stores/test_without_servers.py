"""Leases, uploads and copies, request by request, with a bucket in memory that loses answers when it is told to."""

import json
import os
import time
from types import SimpleNamespace

import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.stores import buckets, mirror
from eeg2text_jax.base.stores.buckets import (
    ANY,
    DIGEST,
    FENCE,
    LOCK,
    UNFINISHED,
    Entry,
    Files,
    Notes,
    StoreError,
    address_of,
    download,
    parse,
    stamp_of,
)
from eeg2text_jax.base.stores.mirror import Change, Lease, Mirror, Sender

PLACE = parse("s3://recordings/run")
KEY = PLACE.below(LOCK).key


def test_a_client_is_shared_by_one_bucket_with_one_set_of_settings(monkeypatch):
    opened = []
    monkeypatch.setattr(buckets, "_CLIENTS", {})
    module = SimpleNamespace(open_bucket=lambda name: opened.append(name) or object())
    monkeypatch.setattr(buckets.importlib, "import_module", lambda name: module)
    places = ("s3://one/a", "s3://one/b", "s3://two/a", "gs://one/a")
    first = [buckets.open_store(parse(place)) for place in places]
    assert opened == ["one", "two", "one"]
    assert first[0] is first[1]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    assert buckets.open_store(parse("s3://one/a")) not in first


class Bucket:
    """Objects by name: (content, tag, labels). `during` is called with the name within each request that writes."""

    def __init__(self):
        self.objects, self.written, self.deleted = {}, [], []
        self.loses_answers, self.during = False, lambda key: None

    def entries(self, prefix):
        return [Entry(key, len(found[0]), found[1]) for key, found in self.objects.items() if key.startswith(prefix)]

    def head(self, key):
        return self.objects[key][1:] if key in self.objects else None

    def read(self, key):
        return self.objects[key][:2] if key in self.objects else None

    def _write(self, key, content, labels, over):
        self.written.append(key)
        self.during(key)
        if over not in (ANY, self.objects[key][1] if key in self.objects else None):
            return None
        self.objects[key] = content, str(len(self.written)), labels
        return None if self.loses_answers else self.objects[key][1]

    def put(self, key, content, over):
        return self._write(key, content, {}, over)

    def upload(self, path, key, digest, over=ANY, labels=None):
        return self._write(key, path.read_bytes(), {DIGEST: digest, **(labels or {})}, over)

    def delete(self, key, over=ANY):
        self.deleted.append(key)
        return self.objects.pop(key, None) is not None


@pytest.fixture
def held(tmp_path, monkeypatch):
    """A bucket, and a lease on a workdir in it."""
    monkeypatch.setenv("EEG2TEXT_BUCKET_CACHE", str(tmp_path / "cache"))
    bucket = Bucket()
    with Lease(bucket, PLACE) as lease:
        yield bucket, lease


@pytest.fixture
def clocks(held, monkeypatch):
    """The boot clock and the wall clock, in a list that a test changes."""
    now = [held[1]._confirmed]
    monkeypatch.setattr(mirror, "_clocks", lambda: now[0])
    return now


def moved(clocks, boot=0.0, wall=0.0):
    clocks[0] = clocks[0][0] + boot, clocks[0][1] + wall


@pytest.mark.parametrize(
    ("boot", "wall"), [(100.0, 100.0), (100.0, 0.0), (0.0, 100.0), (0.0, -100.0)],
    ids=["suspended", "the wall clock set back meanwhile", "a paused machine", "set back"],
)  # fmt: skip
def test_the_bucket_is_asked_again_after_either_clock_moved(held, clocks, boot, wall):
    (bucket, lease), asked = held, len(held[0].written)
    lease.confirm()
    assert len(bucket.written) == asked
    moved(clocks, boot, wall)
    lease.confirm()
    lease.confirm()
    assert len(bucket.written) == asked + 1


def test_a_confirmation_counts_from_the_request_on(held, clocks):
    """A process may be suspended between the bucket's answer and the next line."""
    bucket, lease = held
    bucket.during = lambda key: moved(clocks, 100.0, 100.0)
    lease.confirm(now=True)
    bucket.during, asked = lambda key: None, len(bucket.written)
    lease.confirm()
    assert len(bucket.written) == asked + 1


def test_a_renewal_whose_answer_is_lost_holds_the_lease(held):
    bucket, lease = held
    bucket.loses_answers = True
    lease.confirm(now=True)
    bucket.loses_answers = False
    lease.confirm(now=True)
    assert lease.lost is None


def test_who_lost_the_lease_is_told_each_time_and_asks_no_more(held):
    bucket, lease = held
    bucket.objects[KEY] = b'{"owner": "another", "fence": 9}', "theirs", {}
    for now in (True, False, True):
        with pytest.raises(StoreError, match="another process took it over"):
            lease.confirm(now=now)
    assert bucket.written[1:] == [KEY]


@pytest.fixture
def found(tmp_path, monkeypatch):
    """A bucket with the lease of a process on another machine; `waited` is called after each pause of who waits."""
    monkeypatch.setenv("EEG2TEXT_BUCKET_CACHE", str(tmp_path / "cache"))
    bucket, now = Bucket(), [0.0]
    bucket.objects[KEY] = b'{"owner": "another", "fence": 4, "boot": "elsewhere"}', "theirs", {}
    bucket.waited = lambda: None

    def sleep(seconds):
        now[0] += seconds
        bucket.waited()

    monkeypatch.setattr(mirror, "time", SimpleNamespace(**vars(time) | {"sleep": sleep, "monotonic": lambda: now[0]}))
    bucket.now = now
    return bucket


def owner(bucket):
    return json.loads(bucket.read(KEY)[0])


def test_a_silent_lease_is_taken_when_the_patience_ends_and_a_released_one_at_once(found):
    with Lease(found, PLACE):
        assert mirror.PATIENCE <= found.now[0] < mirror.PATIENCE + mirror.BEAT
        assert owner(found)["fence"] == 5
    assert owner(found)["owner"] == ""
    before = found.now[0]
    with Lease(found, PLACE):
        assert found.now[0] == before
        assert owner(found)["fence"] == 6


HERE = {"host": os.uname().nodename, "process": 2**22 + 1}
OLDER, NEWER = (json.dumps(HERE | more).encode() for more in ({"born": "then"}, {"owner": "ab" * 16, "fence": 7}))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", OLDER, NEWER], ids=range(8))
def test_a_lease_that_proves_nothing_is_taken_when_the_patience_ends(found, content):
    """A damaged one, or one of this host's name and a process that is not here: its holder may be alive."""
    found.objects[KEY] = content, "theirs", {}
    with Lease(found, PLACE):
        assert mirror.PATIENCE <= found.now[0] < mirror.PATIENCE + mirror.BEAT
        assert owner(found)["fence"] == (8 if content == NEWER else 1)


def test_the_file_that_proves_a_holder_alive_is_nobody_elses(held):
    (path,) = (buckets.cache_folder() / "owners").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_lease_that_beats_late_is_not_taken(found):
    def beats():
        if found.now[0] > mirror.PATIENCE - mirror.BEAT:
            found.objects[KEY] = found.objects[KEY][0], "beaten", {}

    found.waited = beats
    with pytest.raises(UserError, match="is in use by process"), Lease(found, PLACE):
        pass
    assert owner(found)["owner"] == "another"


def test_of_two_that_wait_one_takes_the_lease(found):
    def first(key):
        found.objects[KEY] = b'{"owner": "the first", "fence": 5}', "first", {}

    def waited():
        found.during = first if found.now[0] >= mirror.PATIENCE else found.during

    found.waited = waited
    with pytest.raises(UserError, match="another process has just begun to use it"), Lease(found, PLACE):
        pass
    assert owner(found)["owner"] == "the first"


@pytest.fixture
def send(held, tmp_path):
    """Send content under a name as a workdir's file is sent."""
    bucket, lease = held
    sender = Sender(PLACE, bucket, PLACE.run, lease, Notes(PLACE.run))

    def run(name, content):
        path = tmp_path / "snapshot"
        path.write_text(content)
        sender.send(Change("", ((name, path, stamp_of(path)),), ()))

    return run


def test_an_upload_whose_answer_is_lost_is_not_repeated(held, send):
    bucket, _ = held
    bucket.loses_answers = True
    send("x", "1")
    bucket.loses_answers = False
    send("x", "2")
    assert bucket.written.count("run/x") == 2
    assert bucket.read("run/x")[0] == b"2"


def test_what_another_holder_wrote_gets_our_fence(held, send):
    bucket, lease = held
    send("x", "same")
    bucket.objects["run/x"] = b"same", "theirs", {**bucket.head("run/x")[1], FENCE: "9.another"}
    send("x", "same")
    assert bucket.head("run/x")[1][FENCE] == lease.label


def test_an_object_that_was_there_before_is_not_taken_back(held, send, monkeypatch):
    """Only one that the late request made is: the next holder may know the other."""
    bucket, _ = held
    send("x", "1")
    monkeypatch.setattr(mirror, "FRESH", -1.0)

    def taken(key):
        if key != KEY:
            bucket.objects[KEY] = b'{"owner": "another", "fence": 9}', "theirs", {}

    bucket.during = taken
    with pytest.raises(StoreError, match="another process took it over"):
        send("x", "2")
    assert "run/x" in bucket.objects


def test_the_mark_of_an_unfinished_folder_goes_last(held, monkeypatch):
    """A process that is killed before leaves the mark, and the folder counts as absent."""
    bucket, lease = held
    for name in (UNFINISHED, "a", "z"):
        bucket.objects[f"run/checkpoint/{name}"] = b"", name, {}
    monkeypatch.setattr(buckets, "refresh", lambda *_: 0)
    Mirror(PLACE, bucket, PLACE.run, lease).pull()
    assert sorted(bucket.deleted) == sorted(f"run/checkpoint/{name}" for name in (UNFINISHED, "a", "z"))
    assert bucket.deleted[-1] == f"run/checkpoint/{UNFINISHED}"


@pytest.mark.parametrize("url", ["s3://bucket/runs/one", "gs://bucket/a b/c"])
def test_a_path_in_the_cache_is_turned_back_into_its_url_and_no_other_is(tmp_path, monkeypatch, url):
    monkeypatch.setenv("EEG2TEXT_BUCKET_CACHE", str(tmp_path))
    place = parse(url)
    for folder in (place.copy, place.run, place.run_of(1), place.run_of(12)):
        assert address_of(folder) == url
        assert address_of(folder / "data.h5") == f"{url}/data.h5"
    monkeypatch.chdir(tmp_path)
    for path in ("s3/bucket/x", "other/s3/bucket/x", "runs/http/bucket/x", "runs", "/elsewhere/runs/s3/bucket/x"):
        assert address_of(path) == path


def test_a_folder_is_marked_from_before_its_first_change_until_after_its_last(held, tmp_path):
    """A process that is killed in between leaves the mark, whether it was writing files or removing them."""
    bucket, lease = held
    bucket.written = bucket.deleted = requests = []
    sender = Sender(PLACE, bucket, PLACE.run, lease, Notes(PLACE.run))
    for written, removed in (("ab", ""), ("c", "ab"), ("", "c")):
        requests.clear()
        for name in written:
            (tmp_path / name).write_text(name)
        put = [(f"checkpoint/{name}", path := tmp_path / name, stamp_of(path)) for name in written]
        sender.send(Change("checkpoint", tuple(put), tuple(f"checkpoint/{name}" for name in removed)))
        names = [UNFINISHED, *written, *removed, UNFINISHED]
        assert [key for key in requests if key != KEY] == [f"run/checkpoint/{name}" for name in names]
        assert bucket.objects.keys() == {KEY, *(f"run/checkpoint/{name}" for name in written)}


def test_a_copy_that_was_changed_is_not_current(held):
    folder = PLACE.copy
    folder.mkdir(parents=True)
    (folder / "a").write_text("1")
    notes = Notes(folder)
    notes.versions["a"] = stamp_of(folder / "a"), "tag"
    notes.write()
    notes = Notes(folder)
    assert notes.is_current("a", "tag")
    assert not notes.is_current("a", "another")
    assert not notes.is_current("b", "tag")
    (folder / "a").write_text("12")
    assert not notes.is_current("a", "tag")


def test_a_download_that_is_cut_short_leaves_nothing(held):
    class Short:
        def download(self, key, path, advance):
            path.write_bytes(b"123")  # and no checksum is stated

    notes = Notes(PLACE.copy)
    with pytest.raises(StoreError, match="3 bytes arrived, which differ in their number from the 4 bytes"):
        download(Short(), Files({"a": Entry("run/a", 4, "tag")}), notes, "copying")
    assert not (PLACE.copy / "a").exists()
    assert not notes.versions


@pytest.mark.parametrize(
    "place",
    ["s3://bucket/../x", "gs://bucket/a//b", "s3://bucket/a/./b", "gs://bucket/.hidden", "s3://bucket/a\0b", "s3:///x",
     "s3://B/x", "az://bucket/x"],
)  # fmt: skip
def test_addresses_that_no_folder_can_have_are_refused(place):
    with pytest.raises(UserError):
        parse(place)
    assert str(parse("gs://bucket/a/b.c/")) == "gs://bucket/a/b.c"


def test_a_server_without_conditional_requests_is_compared_with_first():
    s3 = pytest.importorskip("eeg2text_jax.base.stores.s3_store", reason="the extra `test` brings it")

    class Client:
        tag, writes = "", 0

        def put_object(self, *, Bucket, Key, Body, **rest):
            if rest.keys() & {"IfMatch", "IfNoneMatch"}:
                raise s3.ClientError({"Error": {"Code": "NotImplemented"}}, "PutObject")
            self.writes += 1
            self.tag = f'"{self.writes}"'
            return {"ETag": self.tag}

        def head_object(self, **_):
            if not self.tag:
                raise s3.ClientError({"Error": {"Code": "404"}}, "HeadObject")
            return {"ETag": self.tag, "Metadata": {}}

    bucket = s3.S3Store("b", client := Client())
    assert bucket.put("k", b"", '"0"') is None
    assert bucket.put("k", b"", None) == '"1"'
    assert bucket.put("k", b"", None) is None
    assert bucket.put("k", b"", '"1"') == '"2"'
    assert bucket.put("k", b"", '"1"') is None
    assert client.writes == 2


NO_ANSWER, NO_ACCESS = r"does not answer \(.*{}.*; check the network", r"the credentials give no access \({}\)"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        *((code, NO_ANSWER) for code in ("SlowDown", "InternalError", "ServiceUnavailable", "503", "")),
        *((code, NO_ACCESS) for code in ("AccessDenied", "SignatureDoesNotMatch")),
    ],
)
def test_whatever_s3_answers_that_it_should_not_is_one_sentence(code, said):
    """Only so does a lease outlive a busy server: its thread goes on after this error alone."""
    s3 = pytest.importorskip("eeg2text_jax.base.stores.s3_store", reason="the extra `test` brings it")

    class Busy:
        def __getattr__(self, name):
            return refuse

    def refuse(*_, **__):
        raise error

    bucket, error = s3.S3Store("recordings", Busy()), s3.ClientError({"Error": {"Code": code}}, "AnyOperation")
    asks = [lambda: bucket.head("k"), lambda: bucket.read("k"), lambda: bucket.delete("k"), lambda: bucket.entries("")]
    for ask in [*asks, *(lambda over=over: bucket.put("k", b"", over) for over in (ANY, None, '"1"'))]:
        with pytest.raises(StoreError, match=rf"^s3://recordings: {said.format(code)}"):
            ask()
    error = KeyError("no answer of S3")
    with pytest.raises(KeyError):
        bucket.head("k")
