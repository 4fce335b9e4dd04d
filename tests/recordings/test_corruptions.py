"""A few of the damages that `tools/checks/damage.py` does in bulk, and that its judge is awake."""

import re

import numpy as np
import pytest
from simulated_study import SHIFTED, make_content
from tiny_run import prepare

from eeg2text_jax.data.datafile import read_datafile
from eeg2text_testing.corruption import corrupt, in_every_format, judge
from eeg2text_testing.zuco_files import write_v5

FILE = "resultsZAB_SR.mat"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Three sentences in every format."""
    content = make_content(5)[:3]
    return content, in_every_format(tmp_path_factory.mktemp("small"), content)


def prepared(config, path, out):
    tally = prepare(config, out, [str(path)])
    return read_datafile(out), tally


@pytest.mark.parametrize("form", ["v5", "v7", "v7.3", "pickle"])
def test_random_damage_never_loses_or_shifts_a_sample_silently(form, small, tmp_path, data_config):
    path = small[1][form]
    original, tally = prepared(data_config, path, tmp_path / "a.h5")
    rng, copy, kinds = np.random.default_rng(7), tmp_path / path.name, []
    for _ in range(15):
        way, damaged = corrupt(path.read_bytes(), rng)
        copy.write_bytes(damaged)
        verdict = judge(data_config, original, tally, copy, tmp_path / "b.h5")
        assert verdict.kind != "WRONG", (way, verdict.detail)
        kinds.append(verdict.kind)
    assert "refused" in kinds
    if form == "v7":
        assert set(kinds) == {"refused"}  # its checksum sees everything


def lose(content):
    word = next(word for word in content[SHIFTED]["word"] if word["nFixations"] is not None)
    for name in word:
        word[name] = word[name] if name == "content" else None


def shift(content):
    words = content[SHIFTED]["word"]
    for name in words[0]:
        if name.startswith("GD_"):
            words[2][name] = words[1][name]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lose, "has 7 words, not 8"),
        (shift, "has another word's EEG"),
        (lambda content: content.pop(), "read .* not"),
        (lambda content: content.append(content[0]), "read .* not"),
    ],
)
def test_the_judge_sees_what_it_should(change, expected, tmp_path, data_config):
    """Well-formed files that differ from the original: what a reader's mistake would look like."""
    content = make_content(5)[:3]
    write_v5(tmp_path / FILE, content)
    original, tally = prepared(data_config, tmp_path / FILE, tmp_path / "a.h5")
    change(content)
    write_v5(tmp_path / FILE, content)
    verdict = judge(data_config, original, tally, tmp_path / FILE, tmp_path / "b.h5")
    assert verdict.kind == "WRONG"
    assert re.search(expected, verdict.detail)
