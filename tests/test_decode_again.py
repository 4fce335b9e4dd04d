"""`audit --again` on folders of strangers: forgeries are refused, nothing of the folder runs, statements are true.

A forger has the documents and the command. He edits any file and computes every digest again.
"""

import contextlib
import json
import os
import pickle
import re
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest
from etils import epath
from tiny_run import as_flag, tiny_settings

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import content_digest, file_digest
from eeg2text_jax.commands import cli
from eeg2text_jax.commands.audit import about_again, decoded_again
from eeg2text_jax.data.datafile import read_datafile
from eeg2text_jax.data.splits.certificate import certify_data
from eeg2text_jax.data.splits.methods import make_split
from eeg2text_jax.data.splits.split import read_split_file, write_split_file
from eeg2text_jax.data.text import load_tokenizer, train_tokenizer
from eeg2text_jax.instrument.auditing.notices import Origin, Provenance
from eeg2text_jax.instrument.predictions.read import read_any
from eeg2text_jax.instrument.workdir import ADDED, Workdir, fields_digest, is_of_its_run, read_configuration
from eeg2text_jax.models.pretrained.load import read_config
from eeg2text_jax.runs import decode_again as again
from eeg2text_jax.runs import pipeline
from eeg2text_jax.runs.decode_again import Again, compare_files, decode_again
from eeg2text_jax.training.study import open_data


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A workdir with a finished run."""
    root = tmp_path_factory.mktemp("runs") / "whole"
    pipeline.run(tiny_settings(), str(root))
    return root


@pytest.fixture
def forged(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "forged")


def sign(root, step=6):
    """Compute every digest again, and set the headers to the configuration and the split of the folder."""
    workdir = Workdir(root)
    document, split = read_configuration(workdir), read_split_file(root / "split.json").record["digest"]
    info = root / f"checkpoints/step_{step}/info/metadata"
    edit(info, split=split, config=fields_digest(document, "training"))
    listed = root / f"checkpoints/step_{step}/digests.json"
    files = json.loads(listed.read_text())["files"]
    files["info/metadata"] = file_digest(info)
    listed.write_text(json.dumps({"files": files, "digest": content_digest(files)}))
    change_rows(root, lambda row: row, split=split, config=fields_digest(document, "decoding"))
    workdir.record("predictions.jsonl", "split.json", "tokenizer", "metrics.jsonl", "data.h5")


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def change_rows(root, change, **header):
    path = root / "predictions.jsonl"
    first, *rows = map(json.loads, path.read_text().splitlines())
    lines = [{"header": first["header"] | header}, *map(change, rows)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_header_of_version_0_2_is_read(forged):
    """It lacks settings of decoding that came later; a value that does something is missed."""
    rows = forged / "predictions.jsonl"
    decode = json.loads(rows.read_text().partition("\n")[0])["header"]["decode"]
    later = {name.removeprefix("decode.") for name in ADDED if name.startswith("decode.")}
    assert later <= decode.keys()
    change_rows(forged, lambda row: row, decode={name: decode[name] for name in decode.keys() - later})
    Workdir(forged).record("predictions.jsonl")
    assert decode_again(read_any(rows)).provenance.level is Origin.DECODED_AGAIN
    change_rows(forged, lambda row: row, decode={name: decode[name] for name in decode.keys() - later - {"num_beams"}})
    Workdir(forged).record("predictions.jsonl")
    with pytest.raises(UserError, match="decode in its header is not what"):
        decode_again(read_any(rows))


def exchange_train_and_test(root):
    """By the product's own writer, as if the run had been trained on what it says is its test part."""
    data, found = read_datafile(root / "data.h5"), read_split_file(root / "split.json")
    split = found.resolve(data)
    parts = {"train": split.parts["test"], "dev": split.parts["dev"], "test": split.parts["train"]}
    other = type(split)(split.method, split.seed, parts, split.names)
    write_split_file(root / "split.json", certify_data(data, other, (0.8, 0.1, 0.1)))
    names = dict(zip(found.samples["test"], other.names[parts["test"]].tolist(), strict=False))
    change_rows(root, lambda row: row | {"sample_id": names[row["sample_id"]]})


def exchange_in_a_file(root):
    exchange_train_and_test(root)
    set_field(root, "split", "method", "file")
    set_field(root, "split", "path", "split.json")


def set_field(root, section, name, value):
    config = json.loads((root / "config.json").read_text())
    config[section][name] = value
    (root / "config.json").write_text(json.dumps(config))


def text_of_the_reference(root):
    change_rows(root, lambda row: row | {"prediction": row["reference"]})


def each_row_of_another_subject(root):
    change_rows(root, lambda row: row | {"subject": "S09"})


def a_lower_dev_loss(root):
    in_the_log(root, lambda loss: loss / 2)


def in_the_log(root, change):
    """Change each loss on dev, or leave it out if the change gives `...`."""
    lines = []
    for line in map(json.loads, (root / "metrics.jsonl").read_text().splitlines()):
        after = {name: change(value) if name.startswith("dev_loss/") else value for name, value in line.items()}
        lines.append(json.dumps({name: value for name, value in after.items() if value is not ...}) + "\n")
    (root / "metrics.jsonl").write_text("".join(lines))


def another_kind_of_recording(root):
    change_rows(root, lambda row: row, recording="fmri")


def other_synthetic_data(root):
    set_field(
        root, "data", "synthetic", json.loads((root / "config.json").read_text())["data"]["synthetic"] | {"seed": 5}
    )


def data_at_an_address(root):
    set_field(root, "data", "source", "gs://someone/data.h5")


def rows_left_out(root):
    path = root / "predictions.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def arms_exchanged(root):
    """Rows of the arm trained on EEG are said to be those of the arm trained on noise, and the other way round."""
    arms = read_configuration(Workdir(root))["grid"]["train_conditions"]
    names = dict(zip(arms, reversed(arms), strict=True))
    info = root / "checkpoints/step_6/info/metadata"
    edit(info, arms=json.loads(info.read_text())["arms"][::-1])
    change_rows(root, lambda row: row | {"train_condition": names[row["train_condition"]]})


def another_tokenizer(root):
    path = root / "tokenizer/tokenizer.json"
    content = json.loads(path.read_text())
    vocabulary = content["model"]["vocab"]
    content["model"]["vocab"] = dict(zip(vocabulary, reversed(vocabulary.values()), strict=True))
    path.write_text(json.dumps(content))
    change_rows(root, lambda row: row, tokenizer=load_tokenizer(root / "tokenizer").name_or_path[-16:])


def a_function_of_the_folder(root):
    """The command takes `--endpoint=MODULE:FUNCTION`; a configuration of a stranger names none."""
    set_field(root, "audit", "endpoint", "evil:score")
    (root / "evil.py").write_text("raise SystemExit('ran')\n")


FORGERIES = {
    arms_exchanged: r"checkpoints: the checkpoint is of another run \(arms noise/0",
    another_tokenizer: r"predictions\.jsonl: tokenizer in its header is not what its configuration and data give",
    a_function_of_the_folder: r"audit\.endpoint is 'evil:score'; expected one of words",
    exchange_train_and_test: r"split\.json: is not the split that split\.method=unique_text makes of the data",
    exchange_in_a_file: r"predictions\.jsonl: tokenizer in its header is not what its configuration",
    text_of_the_reference: r"rows differ from what the checkpoints .* the first is line 2, prediction",
    each_row_of_another_subject: r"96 of 96 rows differ .* line 2, subject",
    a_lower_dev_loss: r"metrics\.jsonl: the lowest dev_loss of eeg/0 is .* and its checkpoint gives",
    another_kind_of_recording: r"predictions\.jsonl: recording in its header is not what",
    other_synthetic_data: r"split\.json",
    data_at_an_address: r"config\.json: data\.source is 'gs://someone/data\.h5', and --again reads from no address",
    rows_left_out: r"1 of 96 rows differ .* which only one of the two has",
}


def test_an_edited_copy_beside_the_rows_of_a_run_is_not_decoded_again(forged, refused):
    rows = (forged / "predictions.jsonl").read_text()
    text_of_the_reference(forged)
    (forged / "predictions.jsonl").rename(forged / "better.jsonl")
    (forged / "predictions.jsonl").write_text(rows)
    said = refused(["audit", f"--eeg={forged / 'better.jsonl'}", "--again"], alone=False)
    assert "better.jsonl: is not in the workdir of the run that wrote it" in said


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.__name__)
def test_a_forged_workdir_is_not_decoded_again(forged, forgery):
    forgery(forged)
    assert_refused(forged, FORGERIES[forgery])


@pytest.mark.parametrize("value", [..., float("nan"), None, "low"])
def test_a_log_without_a_finite_loss_on_dev_is_not_taken(forged, value):
    """JSON of Python has NaN, and nothing is above or below it."""
    in_the_log(forged, lambda _: value)
    assert_refused(forged, r"metrics\.jsonl: has no finite dev_loss of eeg/0")


def assert_refused(root, message):
    sign(root)
    assert is_of_its_run(read_any(root / "predictions.jsonl")), "all digests agree"
    before = listing(root)
    with pytest.raises(UserError, match=message):
        decode_again(read_any(root / "predictions.jsonl"))
    assert listing(root) == before


def a_split_of_its_own(root):
    set_field(root, "split", "method", "file")
    set_field(root, "split", "path", str(root / "split.json"))


def folds_of_another_rule(root):
    a_split_of_its_own(root)
    rule = {"method": "unique_text", "ratio": [0.8, 0.1, 0.1], "seed": 7, "gap": 0.0}
    (root.parent / "folds.json").write_text(json.dumps({"folds": "3", "split": rule, "data": {}}))


def a_tokenizer_from_nowhere(root):
    set_field(root, "text", "tokenizer", "/nowhere/t5")


def data_said_to_be_recordings(root):
    set_field(root, "data", "source", "/nowhere/subject_1.edf")


# Statements of a forger that nothing contradicts -> what is said to be not checked, and what must not be said.
UNSEEN = {
    a_split_of_its_own: ("by which rule the split file divided the samples", "the split was made again"),
    folds_of_another_rule: ("by which rule the split file divided the samples", "the split was made again"),
    a_tokenizer_from_nowhere: ("the tokenizer, which is said to be t5", "the tokenizer was"),
    data_said_to_be_recordings: (
        "where the data come from: subject_1.edf was not prepared",
        "the data were made again",
    ),
}


@pytest.mark.parametrize("forgery", UNSEEN, ids=lambda forgery: forgery.__name__)
def test_what_cannot_be_checked_is_said_to_be_not_checked(forged, forgery):
    forgery(forged)
    sign(forged)
    origin = decode_again(read_any(forged / "predictions.jsonl")).provenance
    assert origin.level == "decoded again"
    said, not_said = UNSEEN[forgery]
    assert any(line.startswith(said) for line in origin.not_checked)
    assert not any(line.startswith(not_said) for line in origin.checked)


BROKEN = {
    "waves.json": "[]",
    "checkpoints/step_6/_CHECKPOINT_METADATA": "[" * 100_000,
    "checkpoints/step_6/state/_METADATA": "{}",
    "checkpoints/step_6/info/metadata": "[]",
    "metrics.jsonl": '{"step": "x"}\n',
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_makes_no_sense_is_refused_in_one_sentence(forged, refused, name):
    (forged / name).write_text(BROKEN[name])
    listed = forged / "checkpoints/step_6/digests.json"
    files = {
        path: file_digest(forged / "checkpoints/step_6" / path) for path in json.loads(listed.read_text())["files"]
    }
    listed.write_text(json.dumps({"files": files, "digest": content_digest(files)}))
    Workdir(forged).record("metrics.jsonl", "waves.json")
    assert refused(["audit", f"--eeg={forged / 'predictions.jsonl'}", "--again"]).startswith("eeg2text audit: ")


def listing(root):
    return {path: path.stat().st_mtime_ns for path in sorted(root.rglob("*"))}


FIELDS = {
    "subject": "S09", "task": "T9", "sentence_id": "T9:1", "n_words": 99, "seed": 3, "recording": "S01/T9",
    "onset": 7.25, "duration": 1.5, "order": 3, "nll": 1.0, "n_tokens": 3, "reference": "a", "prediction": "a",
    "prediction_tokens": [1], "mode": "free_running",
}  # fmt: skip


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_of_a_row_counts(finished, tmp_path, name):
    ours, theirs = finished / "predictions.jsonl", tmp_path / "predictions.jsonl"
    shutil.copy(ours, theirs)
    count = compare_files(theirs, ours)
    assert count == len(ours.read_text().splitlines()) - 1
    for value in (FIELDS[name], None):
        header, first, *rows = ours.read_text().splitlines()
        row = json.loads(first) | {name: value}
        theirs.write_text(
            "\n".join([header, json.dumps({n: v for n, v in row.items() if v is not None}), *rows]) + "\n"
        )
        with pytest.raises(UserError, match=rf"1 of {count} rows differ .* the first is line 2, {name};"):
            compare_files(theirs, ours)


def test_numbers_that_another_device_rounds_are_the_same(finished, tmp_path):
    header, first, *rows = (finished / "predictions.jsonl").read_text().splitlines()
    row = json.loads(first)
    (tmp_path / "p").write_text("\n".join([header, json.dumps(row | {"nll": row["nll"] * 1.0005}), *rows]) + "\n")
    assert compare_files(tmp_path / "p", finished / "predictions.jsonl") == len(rows) + 1


class Canary:
    """Makes the file at `path` when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_nothing_of_the_folder_runs_or_is_used_and_nothing_is_written(forged, tmp_path, capsys, monkeypatch):
    """Code in tokenizer, configuration, pickles and modules; a cache of compiled programs, a tracker and a cluster."""
    canary = tmp_path / "canary"
    code = f"import os\nos.path.isdir({str(canary)!r}) or os.mkdir({str(canary)!r})\n"
    for name in ("sitecustomize.py", "tok.py", "tokenizer/tok.py", "checkpoints/step_6/tok.py", "cache/tok.py"):
        (forged / name).parent.mkdir(exist_ok=True)
        (forged / name).write_text(code)
    add_code(forged / "tokenizer")
    template = f"{{{{ cycler.__init__.__globals__.os.mkdir({str(canary)!r}) }}}}"
    edit(forged / "tokenizer/tokenizer_config.json", chat_template=template)
    (forged / "tokenizer/chat_template.jinja").write_text(template)
    (forged / "targets.npz").write_bytes(pickle.dumps(Canary(canary)))
    config = json.loads((forged / "config.json").read_text())
    config["compilation_cache"] = str(forged / "cache")
    config["train"]["tracker"] = "wandb:someone"
    config["parallel"]["hosts"] = "env"
    config["metrics"] |= {"names": ["bertscore"], "encoder": str(forged / "tokenizer")}
    (forged / "config.json").write_text(json.dumps(config))
    sign(forged)
    before, asked = listing(forged), []
    others = {*threading.enumerate()} - {threading.current_thread()}  # of earlier tests, such as clients of a store

    def connect(self, address):
        if threading.current_thread() not in others:
            asked.append(address)

    monkeypatch.setattr("socket.socket.connect", connect)
    with without_cache():
        command = ["audit", f"--eeg={forged / 'predictions.jsonl'}", "--again"]
        assert cli.main([*command, f"--json={tmp_path / 'a.json'}", f"--html={tmp_path / 'a.html'}"]) != 2
        assert jax.config.jax_compilation_cache_dir is None
    assert not canary.exists()
    assert listing(forged) == before
    assert asked == []
    origin = json.loads((tmp_path / "a.json").read_text())["provenance"]
    said = capsys.readouterr().out
    assert origin["level"] == "decoded again"
    assert "the tokenizer was trained again on the sentences of the train part" in origin["checked"]
    for line in [*origin["checked"], *origin["not_checked"]]:
        assert line in said
    assert "Not checked: on which rows the checkpoints were trained" in (tmp_path / "a.html").read_text()


@contextlib.contextmanager
def without_cache():
    """No cache of compiled programs is set, as in the command."""
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        yield
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def add_code(folder):
    edit(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["tok.Own", "tok.Own"]}, tokenizer_class="Own")


@pytest.mark.parametrize("answer", ["y\n", "n\n"])
def test_a_tokenizer_that_needs_code_of_its_folder_is_refused_without_a_question(forged, tmp_path, monkeypatch, answer):
    folder = forged / "tokenizer"
    (folder / "tok.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')\n")
    add_code(folder)
    monkeypatch.setattr("builtins.input", lambda *_: answer.strip())
    with pytest.raises(UserError, match=r"tokenizer: its tokenizer needs Python code of the folder .* never executed"):
        load_tokenizer(folder)
    assert not (tmp_path / "canary").exists()


def test_a_configuration_that_needs_code_of_its_folder_is_refused_without_a_question(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')\n")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}}))
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(UserError, match=r"config\.json: needs Python code of the folder \(auto_map\), which is never"):
        read_config(tmp_path)
    assert not (tmp_path / "canary").exists()


def test_code_beside_a_tokenizer_that_transformers_knows_is_no_obstacle(forged):
    """Many checkpoints of the Hub bring code for older versions beside files that need none."""
    edit(forged / "tokenizer/tokenizer_config.json", auto_map={"AutoTokenizer": ["tok.Own", "tok.Own"]})
    assert load_tokenizer(forged / "tokenizer").eos_token == "</s>"


@pytest.mark.slow
def test_training_on_the_test_part_shows_in_the_losses(tmp_path):
    """The forger trains on one part and states that it is the test part; log, checkpoint and rows are the product's."""
    (tmp_path / "made").mkdir()
    data = open_data(tiny_settings(), Workdir(tmp_path / "made"))
    split = make_split(data, "unique_text", (0.4, 0.2, 0.4), 0)
    parts = {"train": split.parts["test"], "dev": split.parts["dev"], "test": split.parts["train"]}
    for name, own in (("trained", split.parts), ("stated", parts)):
        write_split_file(tmp_path / f"{name}.json", certify_data(data, type(split)("file", 0, own, split.names)))
    train_tokenizer(map(str, data.sentence), 330).save_pretrained(str(tmp_path / "tokenizer"))
    root, fields = tmp_path / "run", {"data__source": str(data.path), "text__tokenizer": str(tmp_path / "tokenizer")}
    fields |= {"split__method": "file", "train__steps": 200, "train__eval_every": 200, "optim__lr": 3e-2}
    pipeline.run(tiny_settings(**fields, split__path=str(tmp_path / "trained.json")), str(root))
    honest = decode_again(read_any(root / "predictions.jsonl")).provenance
    assert not any("as after training on the test part" in line for line in honest.not_checked)
    shutil.copy(tmp_path / "stated.json", root / "split.json")
    set_field(root, "split", "path", str(tmp_path / "stated.json"))
    sign(root, step=200)
    (root / "predictions.jsonl").unlink()
    assert cli.main(["decode", as_flag(**fields, split__path=str(tmp_path / "stated.json")), f"--workdir={root}"]) == 0
    forged = decode_again(read_any(root / "predictions.jsonl")).provenance
    assert any(re.search(r"eeg/0.* as after training on the test part", line) for line in forged.not_checked)
    assert any("the loss on the train part is far above it (eeg/0" in line for line in forged.not_checked)


def test_losses_of_each_arm_are_held_against_the_log_until_its_own_best_step(tmp_path, monkeypatch):
    """The first arm is best at step 4, after two steps of training losses, the second one at step 2."""
    rows = [{"step": step, "loss/eeg/0": 6.0 - step, "loss/noise/1": 2.0 + step} for step in (1, 2, 3, 4, 5, 6)]
    dev = {2: (3.0, 1.0), 4: (2.5, 1.5), 6: (2.6, 1.2)}
    rows += [{"step": step, "dev_loss/eeg/0": one, "dev_loss/noise/1": other} for step, (one, other) in dev.items()]
    workdir = Workdir(epath.Path(tmp_path))
    workdir.metrics.write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def said_of(eeg, noise):
        parts = ("train", "dev", "test")
        losses = {arm: dict(zip(parts, own, strict=True)) for arm, own in (("eeg/0", eeg), ("noise/1", noise))}
        monkeypatch.setattr(again, "_losses", lambda study: losses)
        again._check_losses(SimpleNamespace(workdir=workdir), checks := again.Checks())
        return checks

    honest = said_of((2.7, 2.5, 2.6), (3.8, 1.0, 3.5))
    assert honest.checked == ["the loss of each checkpoint on the dev part is the lowest of the log"]
    (said,) = honest.not_checked
    assert "eeg/0: train 2.700 (log 2.500), test 2.600; noise/1: train 3.800 (log 3.500), test 3.500" in said
    assert "far below" not in said
    above, said = said_of((2.8, 2.5, 2.6), (3.8, 1.0, 3.4)).not_checked
    assert "far above it (eeg/0, 2.800 and not 2.500)" in above
    assert said.endswith("On the test part noise/1 is far below the train part, as after training on the test part")
    for wrong in (((2.7, 2.6, 2.6), (3.8, 1.0, 3.5)), ((2.7, 2.5, 2.6), (3.8, 0.9, 3.5))):
        with pytest.raises(UserError, match="the lowest dev_loss of"):
            said_of(*wrong)


def test_what_was_and_was_not_checked_is_said_of_each_file(monkeypatch):
    """The run's train part is what the audit looks test sentences up in, unless another text is given."""
    made = [
        Again(
            Provenance(Origin.DECODED_AGAIN, "again", (f"rows {n}", "split"), (f"data {n}",)),
            {"training_text": [str(n)]},
        )
        for n in range(3)
    ]
    monkeypatch.setattr("eeg2text_jax.runs.decode_again.decode_again", lambda one: made[int(one.path.stem)])
    found = decoded_again([SimpleNamespace(path=Path(f"{n}.jsonl")) for n in range(3)])
    assert found.provenance.checked == ("rows 0", "split", "1.jsonl: rows 1", "1.jsonl: split", "2.jsonl: rows 2",
                                        "2.jsonl: split")  # fmt: skip
    assert found.provenance.not_checked == ("data 0", "1.jsonl: data 1", "2.jsonl: data 2")
    for given, facts in ((None, {"training_text": ["0"]}), (Path("mine.txt"), {})):
        assert about_again(found, SimpleNamespace(train_text=given)) == {"decoded": found.provenance, **facts}
