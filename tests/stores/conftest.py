"""Servers of buckets for the tests of this folder."""

import pytest

from eeg2text_testing.bucket_servers import SERVERS


@pytest.fixture(scope="module", params=["s3", "gs"])
def served(request):
    pytest.importorskip("moto", reason="the extra `test` brings a server of S3")
    with SERVERS[request.param]() as server:
        yield server


@pytest.fixture
def server(served, tmp_path, monkeypatch):
    for name, value in {**served.environment, "EEG2TEXT_BUCKET_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("EEG2TEXT_BUCKET_SECONDS", "2")
    return served
