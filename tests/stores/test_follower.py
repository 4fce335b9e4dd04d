"""The copy of a workdir that a host has which is not the first."""

import os
from pathlib import Path

import pytest

from eeg2text_jax.base.files import remove, replacing, write_text
from eeg2text_jax.base.stores import buckets, mirror
from eeg2text_jax.base.stores.buckets import address_of
from eeg2text_jax.base.stores.mirror import mirrored

pytest.importorskip("moto", reason="the extra `test` brings a server of S3")


def below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_others_have_what_the_first_host_has_uploaded(server, monkeypatch):
    place = server.address("followed/run")
    monkeypatch.setattr(buckets, "_FOLLOWED", [])
    copy = buckets.follow(place, 1)
    with mirrored(place) as root:
        root = Path(root)
        write_text(root / "config.json", "{}")
        for step in (2, 4):
            with replacing(root / f"checkpoints/step_{step}") as partial:
                partial.mkdir(parents=True)
                (partial / "part").write_bytes(os.urandom(9))
        mirror.settle_all()
        buckets.pull_all()
        assert below(copy) == {"config.json"}
        buckets.pull_folder(copy / "checkpoints/step_4")
        assert below(copy) == {"config.json", "checkpoints/step_4/part"}
        assert (copy / "checkpoints/step_4/part").read_bytes() == (root / "checkpoints/step_4/part").read_bytes()
        assert address_of(copy / "config.json") == f"{place}/config.json"

        remove(root / "checkpoints/step_4")
        write_text(root / "config.json", '{"n": 1}')
        (copy / "left by an earlier run").write_text("")
        mirror.settle_all()
        buckets.pull_all()
        assert below(copy) == {"config.json"}
        assert (copy / "config.json").read_text() == '{"n": 1}'
        buckets.pull_folder(root / "checkpoints")  # of another place
        assert below(copy) == {"config.json"}
