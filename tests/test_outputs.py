"""Outputs of commands: regular files only, never an input, never one name twice; found before any work is done."""

import argparse
import os
import re

import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.stores import buckets
from eeg2text_jax.commands import cli
from eeg2text_jax.commands.arguments import WRITTEN, localize

# Every option with a value that some command has: a new one belongs to those that write or to the others.
# fmt: off
OTHERS = {
    "as", "checkpoints", "condition", "conditions", "conversations", "data", "gap", "judges", "pairs", "part",
    "host", "port", "push", "reference", "seeds", "arm", "audit",
    "batches", "block", "by", "choices", "cite", "columns", "chip-batch",
    "compat", "config", "control", "dataset", "dataset-name", "deciding",
    "eeg", "effort", "encoder", "endpoint", "folds", "format", "groups", "id", "judge", "labels",
    "largest", "layer", "licence", "margin", "meta", "method", "metric", "metrics", "mode", "model", "name", "names",
    "organization", "overlap", "path", "plan", "profile", "proof", "ratio", "relationship",
    "repeats", "rescale", "seed", "steps",
    "task", "tokenizer", "topology", "train-text", "workdir",
}
FLAGS = {
    "again", "common", "config.section.field", "demo", "help", "idf", "list", "signatures", "strict", "truncate",
    "unique-sessions", "unique-subjects", "verbose",
}
# fmt: on


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("in", "in.h5", "kept"):
        (tmp_path / name).write_text("precious")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("precious")
    os.symlink("kept", "link")
    os.link("in", "hard")
    os.mkfifo("pipe")
    return tmp_path


BAD = [
    ("export-data in.h5 --out=in.h5", "input"),
    ("check in.h5 --png=in.h5", "input"),
    ("check in.h5 --png in.h5", "input"),
    ("split in.h5 --json=./in.h5", "input"),
    ("split in.h5 --map=in.h5", "input"),
    ("prepare in* --out=in.h5", "input"),
    ("prepare --config.data.source=in* --out=in.h5", "input"),
    ("prepare --config=own.py:rate=2,file=in.h5 --out=in.h5", "input"),
    ("prepare --config=in.h5:file=other --out=in.h5", "input"),
    ("score in --json=in", "input"),
    ("score in --js=in", "input"),
    ("score in --rows=hard", "input"),
    ("audit --eeg in --control kept --json=kept", "input"),
    ("prepare folder --out=folder/file", "input"),
    ("score folder --rows=folder/file", "input"),
    ("score in --json=new --rows=./new", "same place"),
    ("score --json=kept -- kept", "input"),
    ("score in --json=s3://b/new --rows=s3://b/new", "same place"),
    ("audit --eeg in --json=link", "symbolic link"),
    ("audit --eeg in --html=/dev/null", "device"),
    ("score in --json=/dev/stdout", "never written over"),
    ("score in --json=pipe", "device"),
    ("score in --json=-", "standard output"),
    ("score in --json=", "name a file"),
    ("preflight --json=folder", "is a folder"),
    ("prepare in --out=folder", "is a folder"),
    ("score in --json=missing/new", "no folder missing"),
    ("records in --out=kept", "is a file"),
    ("export --workdir=w --out=folder", "not empty"),
]


@pytest.mark.parametrize(("line", "why"), BAD)
def test_an_output_that_would_lose_something_is_refused_before_the_work(line, why, place, monkeypatch, refused):
    monkeypatch.setattr(cli, "command", lambda name: pytest.fail("the work began"))
    said = refused(line.split())
    assert why in said
    assert (place / "in").read_text() == (place / "kept").read_text() == (place / "in.h5").read_text() == "precious"
    assert os.path.islink("link")


@pytest.mark.parametrize(
    "line",
    [
        "score in --json=new --rows=newer",
        "score in --json=kept",
        "audit --eeg folder/file --json=folder/audit.json",
        "records folder --out=folder",
        "records folder --out=new",
        "export --workdir=folder --out=new",
        "prepare in --out=in2.h5",
        "prepare folder --out=in.h5 --config.data.raw.begin=* --config.data.raw.word=in* --task=in*",
        "score --json=- --help",
    ],
)
def test_a_good_output_reaches_the_command(line, place, monkeypatch):
    monkeypatch.setattr(cli, "command", lambda name: lambda arguments: 0)
    assert cli.main(line.split()) == 0


class Seen(Exception):
    """The parser of a command has been noted."""


def test_every_option_that_writes_is_checked(monkeypatch):
    """Of all parsers: an option is one of those that write, which are checked, or of those that do not."""
    found: set[str] = set()

    def note(parser, *_, **__):
        found.update(name[2:] for action in parser._actions for name in action.option_strings if name[:2] == "--")
        raise Seen

    for name in ("parse_args", "parse_known_args"):
        monkeypatch.setattr(argparse.ArgumentParser, name, note)
    for command in cli.COMMANDS:
        for line in (["--unknown=x", "--config=demo"], ["copy", "demo"]):
            with pytest.raises((Seen, UserError, SystemExit)) as caught:
                raise SystemExit(cli.command(command)(line))
            if caught.type is UserError:
                found.update(re.findall(r"--([a-z-]+)=", str(caught.value)))
    found -= {"unknown"}
    assert {"out", "json", "html", "rows", "png", "time", "map", "croissant"} <= found
    assert not OTHERS & set(WRITTEN)
    unknown = found - OTHERS - FLAGS - set(WRITTEN)
    assert not unknown, "say in tests/test_outputs.py and commands.arguments.WRITTEN whether these write"


def test_addresses_of_every_value_of_an_option_become_files(monkeypatch):
    """`--eeg` and `--control` have several values; an option with one value has no second."""
    monkeypatch.setattr(buckets, "at_hand", lambda address: f"/copies/{address.rpartition('/')[2]}")
    given = ["--eeg", "s3://b/x", "here", "s3://b/y", "--control=s3://b/z", "s3://b/w", "--licence", "s3://b/statement"]
    with localize("audit", given) as local:
        expected = ["--eeg", "/copies/x", "here", "/copies/y", "--control=/copies/z", "/copies/w"]
        assert local == [*expected, "--licence", "s3://b/statement"]
