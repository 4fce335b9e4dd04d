"""The folder of a judge: the old one stays until the new one is whole, and nothing behind a link is touched."""

import dataclasses
import json
import os

import numpy as np
import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.judge import _judge_folder as judge_folder
from eeg2text_jax.judge._judge_folder import Judge, read_judge, write_judge
from eeg2text_jax.judge.wording import TEMPLATES, Labels, Wording


def made(value):
    stated = {"checkpoint": "tiny", "weights": "0" * 64, "tokenizer": "1" * 64, "data": "2" * 64}
    stated |= {"threshold": 0.5, "threshold_how": "given", "exact": "preserved", "source": "template pairs"}
    wording, labels = Wording("own", "{reference} {hypothesis}"), Labels(("yes", "no"), ((1,), (2,)))
    prompt = np.full((2, 3), value, np.float32)
    return Judge(dtype="float32", param_dtype="float32", wording=wording, labels=labels, prompt=prompt, **stated)


def test_a_new_judge_replaces_the_old_one(tmp_path):
    write_judge(made(1), tmp_path / "judge")
    write_judge(made(2), tmp_path / "judge")
    assert read_judge(tmp_path / "judge").prompt[0, 0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["judge"]


def test_the_signature_has_all_that_scores_depend_on():
    changes = [
        {"weights": "3" * 64}, {"prompt_digest": "4" * 64}, {"threshold": 0.6}, {"exact": "exclude"},
        {"source": "human labels"}, {"labels": Labels(("true", "false"), ((1,), (2,)))},
        {"wording": Wording("other", "{reference} {hypothesis}")},
        {"wording": Wording("own", "{reference} {hypothesis}", before="an example")},
    ]  # fmt: skip
    changed = [dataclasses.replace(made(1), **change).signature("tiny") for change in changes]
    assert len({made(1).signature("tiny"), made(1).signature("large"), *changed}) == len(changes) + 2


def test_a_full_disk_leaves_the_old_judge(tmp_path, monkeypatch):
    write_judge(made(1), tmp_path / "judge")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(judge_folder, "write_safetensors", full)
    with pytest.raises(OSError, match="No space"):
        write_judge(made(2), tmp_path / "judge")
    assert read_judge(tmp_path / "judge").prompt[0, 0] == 1


def test_nothing_behind_a_link_is_deleted(tmp_path):
    write_judge(made(1), tmp_path / "others")
    (tmp_path / "judge").symlink_to("others")
    with pytest.raises(UserError, match="is a symbolic link"):
        write_judge(made(2), tmp_path / "judge")
    assert read_judge(tmp_path / "others").prompt[0, 0] == 1
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="is a device, a pipe or a socket"):
        write_judge(made(2), tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("ids", [((0,), (65_536,)), ((256_000, 7), (2**31 - 1,))])
def test_token_ids_of_any_vocabulary_are_read(tmp_path, ids):
    write_judge(dataclasses.replace(made(1), labels=Labels(("yes", "no"), ids)), tmp_path / "judge")
    assert read_judge(tmp_path / "judge").labels == Labels(("yes", "no"), ids)


def test_what_is_no_token_id_is_refused(tmp_path):
    for wrong in (2**31, -1, 1.5, True, "1"):
        write_judge(dataclasses.replace(made(1), labels=Labels(("yes", "no"), ((1,), (2, wrong)))), tmp_path / "judge")
        with pytest.raises(UserError, match="labels are not two words with their token ids"):
            read_judge(tmp_path / "judge")


@pytest.mark.parametrize(
    ("name", "said"), [("plain", "added to a text that ends without one of . ! ?"), ("figure", "as in the template")]
)
def test_the_file_says_that_plain_adds_a_full_stop(tmp_path, name, said):
    wording = Wording(name, TEMPLATES[name])
    write_judge(dataclasses.replace(made(1), wording=wording), tmp_path / "judge")
    assert json.loads((tmp_path / "judge/judge.json").read_text("utf8"))["wording"]["full_stop"] == said
    assert read_judge(tmp_path / "judge").wording == wording
    asked = wording.text("the boy", "a girl!")  # one ends already
    assert ("Ground truth: the boy. Transcription: a girl! Transcript" in asked) == (name == "plain")
