"""Command lines: what takes effect, and what a mistake is told."""

import re
from pathlib import Path

import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.cli import main
from eeg2text_jax.training.configuration import load_config, parse_config

ROOT = Path(__file__).parents[1]
DEMO = f"--config={ROOT / 'configs/demo.py'}"


def parse(*argv):
    return parse_config([DEMO, "--workdir=DIR", *argv], "run", options=("workdir",))


@pytest.mark.parametrize(("written", "read"), [("56:56", ((56, 56),)), ("16:24,56:56", ((16, 24), (56, 56)))])
def test_buckets_as_pairs(written, read):
    assert parse(f"--config.batch.buckets={written}").config.batch.buckets == read


@pytest.mark.parametrize("argv", [["--config"], ["--config", "--workdir=DIR"], ["--workdir=DIR"], ["--config="]])
def test_a_missing_configuration_is_said(argv):
    with pytest.raises(UserError, match=r"^--config is missing; usage"):
        parse_config(argv, "run", options=("workdir",))


def test_argument_of_a_file():
    assert load_config(f"{ROOT / 'configs/demo.py'}:null").data.synthetic.signal == 0.0
    with pytest.raises(UserError, match="expected `planted` or `null`"):
        load_config(f"{ROOT / 'configs/demo.py'}:nothing")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--config.trian.steps=20", r"--config\.trian: there is no such field; did you mean 'train'"),
        ("--config.train.stpes=20", r"did you mean 'train\.steps'"),
        ("--config.optim.learning_rate=1e-4", r"did you mean 'optim\.lr'\?"),
        ("--config.optim.wd=0", r"did you mean 'optim\.weight_decay'\?"),
        ("--config.train.batch_size=8", r"did you mean 'batch\.size' or 'decode\.batch_size'\?"),
        ("--config.train.steps.more=20", r"`train\.steps` is a value"),
        ("--config.model.shape.d_modl=8", r"did you mean.* `c\.model\.shape = \{'d_modl': \.\.\.\}`"),
        ("--config.train.steps=many", "many"),
        (
            "--train.steps=20",
            r"--train\.steps: fields of the configuration begin with --config, --config\.train\.steps=",
        ),
        ("train.steps=20", r"train\.steps: fields of the configuration begin with --config, --config\.train\.steps="),
        ("--wrokdir=x", "wrokdir"),
        ("stray", "unexpected argument 'stray'"),
    ],
)
def test_mistakes_are_one_sentence(argument, message):
    with pytest.raises(UserError, match=message) as caught:
        parse(argument)
    assert "\n" not in str(caught.value)


def test_what_only_resembles_a_field_is_left_as_it_is():
    """A field stands before the first `=`, begins with a section and has dots between its names."""
    found = parse_config([DEMO, "--workdir=runs/optim.lr=0.001"], "run", options=("workdir",))
    assert found.options["workdir"] == "runs/optim.lr=0.001"
    sources = ["data.csv", "text.tsv", "data/subject=01", "data-1=a.csv", "own.data.x=1.csv", "a=data.x=1.csv"]
    found = parse_config(["--out=a.h5", *sources], "prepare", options=("out",), default="default", positional="SOURCE")
    assert found.positional == sources


def test_missing_options():
    with pytest.raises(UserError, match="--workdir is missing"):
        parse_config([DEMO], "run", options=("workdir",))


def test_command_line_exit_statuses(capsys):
    assert main(["--help"]) == 0
    assert main([]) == 2
    assert capsys.readouterr().err == ""


PATHS = "a path, or gs://BUCKET/PATH, or s3://BUCKET/PATH"


@pytest.mark.parametrize(
    ("command", "write"),
    [
        (["run", DEMO, "--workdir=az://bucket/run"], "gs:"),
        (["run", DEMO, "--workdir", "https://bucket/run"], "gs:"),
        (["run", DEMO, "--workdir=x", "--config.data.source=az://bucket/data.h5"], PATHS),
        (["prepare", "synthetic", "--out=az://bucket/data.h5"], "gs:"),
        (["score", "az://bucket/predictions.jsonl"], "gs:"),
        (["audit", "--eeg=az://bucket/predictions.jsonl"], "gs:"),
        (["export", "--workdir=az://bucket/run", "--out=x"], "gs:"),
        (["run", DEMO, "--workdir=S3://lab/run"], "write s3://lab/run."),
        (["run", DEMO, "--workdir", "GS://lab/run"], "write gs://lab/run."),
        (["run", DEMO, "--workdir=file:///data/run"], "write /data/run."),
        (["train", DEMO, "--workdir=FILE://localhost/data/run"], "write /data/run."),
        (["score", "file://rows.jsonl"], "write rows.jsonl."),
        (["audit", "--eeg=file:///x.jsonl"], "write /x.jsonl."),
        (["export", "--workdir=x", "--out=S3://lab/x"], "write s3://lab/x."),
        (["split", "gcs://lab/data.h5"], "only buckets (gs://, s3://)"),
        (["run", DEMO, "--workdir=x", "--config.data.source=S3://lab/data.h5"], PATHS),
        (["run", DEMO, "--workdir=x", "--config.data.source=file:///data.h5"], PATHS),
    ],
)
def test_other_places_and_spellings_are_one_sentence_with_the_right_one(command, write, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    sentence = refused(command)
    assert write in sentence
    assert "://bucket" in sentence or "bucket" not in str(command)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("command", "options", "field"), [
    ("run", ("workdir", "folds"), "data.source"), ("train", ("workdir",), "optim.lr"),
    ("decode", ("workdir",), "decode.num_beams"), ("prepare", ("out",), "data.raw.begin"),
    ("judge", ("workdir", "labels"), "prompt.length"), ("bench", ("json", "baseline", "steps"), "parallel.mesh"),
    ("preflight", ("topology", "json", "effort", "largest", "chip-batch"), "parallel.fsdp"),
])  # fmt: skip
def test_help_gives_options_and_the_most_used_fields_with_meanings(command, options, field, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    said = capsys.readouterr().out.split("\n\n")
    assert len(said[1]) > 40, "what the command does"
    for option in ("config", *options):
        assert re.search(rf"^  --{option}\n      \S.{{20}}", said[2], re.MULTILINE), option
    fields = re.findall(r"^  --config\.(\S+)\n      (\S.{3,})", said[3], re.MULTILINE)
    assert len(fields) == 10
    assert field in dict(fields)
    assert all("given." not in meaning and not meaning.startswith("(default") for _, meaning in fields)


@pytest.mark.parametrize("argument", ["--cfg=own", "--workdirs=x", "--confg=own", "--fold=3"])
def test_an_option_that_is_nearly_another_names_it(argument, refused):
    near = {"--cfg=own": "config", "--confg=own": "config", "--workdirs=x": "workdir", "--fold=3": "folds"}[argument]
    assert f"there is no such option; did you mean --{near}?" in refused(["run", argument, "--workdir=x"])


def test_a_configuration_without_a_source_says_that_none_is_named(tmp_path, refused):
    said = refused(["prepare", "--config=own", f"--out={tmp_path / 'a.h5'}"])
    assert "data.source names no recordings yet; give --config.data.source=FILES" in said


def test_a_workbook_is_no_source_of_recordings(tmp_path, refused):
    path = tmp_path / "own.xlsx"
    path.write_bytes(b"PK\x03\x04 and more")
    said = refused(["prepare", str(path), f"--out={tmp_path / 'own.h5'}"])
    assert "own.xlsx: is a workbook" in said
    assert "as CSV (UTF-8)" in said


def test_a_field_of_an_empty_shape_is_told_where_it_goes():
    argv = ["--config=fair", "--workdir=DIR", "--config.model.shape.d_model=512"]
    message = r"this section is empty\. Write it .* `c\.model\.shape = \{'d_model': \.\.\.\}`"
    with pytest.raises(UserError, match=message):
        parse_config(argv, "run", options=("workdir",))
