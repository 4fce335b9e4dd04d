"""Hosts that differ are refused by name."""

import socket

import jax
import pytest
from jax.experimental import multihost_utils

from eeg2text_jax.base.devices import hosts, supervisor
from eeg2text_jax.base.errors import UserError

CONFIG = {"train": {"steps": 4}, "optim": {"lr": 1e-3}}


@pytest.fixture
def others(monkeypatch):
    """Three hosts; the last is this one with changes."""
    changes = {}

    def exchanged(own):
        last = {**own, "host": "tpu-2", "clock": own.get("clock", 0.0) + changes.pop("clock", 0.0)}
        return [own, own, {**last, "same": own["same"] | changes}]

    monkeypatch.setattr(jax, "process_count", lambda: 3)
    monkeypatch.setattr(multihost_utils, "sync_global_devices", lambda name: None)
    monkeypatch.setattr(hosts, "exchanged", exchanged)
    return changes


def test_hosts_that_agree(others, monkeypatch, tmp_path):
    monkeypatch.setattr(supervisor, "NAMES", [tmp_path / "names"])
    hosts.check_code(CONFIG)
    hosts.check_data(data="1", split="2")
    name = socket.gethostname()
    assert (tmp_path / "names").read_text() == f"{name}\n{name}\ntpu-2\n"


@pytest.mark.parametrize("name", ["code", "jax", "config.optim"])
def test_another_version_or_configuration(others, name):
    others[name] = "other"
    with pytest.raises(UserError, match=rf"host 2 \(tpu-2\): has another {name} \(other\) than the first host"):
        hosts.check_code(CONFIG)


def test_another_clock(others):
    others["clock"] = -300.0
    with pytest.raises(UserError, match=r"host 2 \(tpu-2\): its clock is -300 s from the clock of the first host"):
        hosts.check_code(CONFIG)


def test_other_data(others):
    others["data"] = "other"
    with pytest.raises(UserError, match=r"host 2 \(tpu-2\): has another data \(other\)"):
        hosts.check_data(data="1", split="2")


def test_what_hosts_say_is_exchanged():
    assert hosts.exchanged({"host": "a", "same": {}}) == [{"host": "a", "same": {}}]
    assert len(hosts.code_digest()) == 12
