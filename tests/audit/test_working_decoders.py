"""Published outputs of decoders that work (speech, captions from fMRI): no rule refuses them; clones lie elsewhere.

`DECODERS=FOLDER` names the folder of bare clones, `owner+name/repo` each.
"""

import json
import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.predictions.file import Prediction

CLONES = Path(os.environ.get("DECODERS", "none"))
SPEECH = "examples/microelectrode/willett_2023"
pytestmark = pytest.mark.skipif(not CLONES.is_dir(), reason="DECODERS names no folder of clones")


def shown(repository, path):
    place = CLONES / repository / "repo"
    return subprocess.run(
        ["git", f"--git-dir={place}", "show", f"HEAD:{path}"], capture_output=True, check=True
    ).stdout.decode()


def listed(repository, pattern):
    place = CLONES / repository / "repo"
    command = ["git", f"--git-dir={place}", "ls-tree", "-r", "--name-only", "HEAD"]
    names = subprocess.run(command, capture_output=True, check=True, text=True)
    return [name for name in names.stdout.splitlines() if re.search(pattern, name)]


def rows_of(pairs, mode="free_running", condition="eeg"):
    return [
        Prediction(str(i), "", "", f"s{i}", len(r.split()), "eeg", condition, 0, mode, r, p)
        for i, (r, p) in enumerate(pairs)
        if r.strip()
    ]


def speech():
    repository = "innerspeech+innerspeech"
    truth = shown(repository, f"{SPEECH}/refs/true_dev_Transcriptions.txt").splitlines()
    for path in listed(repository, rf"{SPEECH}/results/.*txt$"):
        said = shown(repository, path).splitlines()
        if len(said) == len(truth):
            yield path, list(zip(truth, said, strict=True))
    repository = "CIBR-Okubo-Lab+speechBCI_2024"
    truth = shown(repository, "notebooks/samples/target_test.txt").splitlines()
    for path in ("notebooks/samples/model1_test.txt", "notebooks/samples/model2_test.txt"):
        yield path, list(zip(truth, shown(repository, path).splitlines(), strict=True))


def captions():
    repository = "weihaox+BrainHub"
    truth = json.loads(shown(repository, "caption/fmri_cococap.json"))
    for path in listed(repository, "caption/comparison/.*json$"):
        said = json.loads(shown(repository, path))
        text = {key: value if isinstance(value, str) else value[0] for key, value in said.items()}
        yield path, [(truth[key][0], text[key]) for key in truth if key in text]


def exchanged(pairs):
    said = [p for _, p in pairs]
    random.Random(0).shuffle(said)
    return [(r, p) for (r, _), p in zip(pairs, said, strict=True)]


@pytest.mark.parametrize("files", [speech, captions])
def test_all_are_judged_and_use_the_recording_as_stated(files):
    found = {}
    for path, pairs in files():
        rows = rows_of(pairs)
        paired = audit(rows, {"shuffled": rows_of(exchanged(pairs), condition="shuffled")}, resamples=300, common=True)
        alone = audit(rows, {}, resamples=300)
        unsaid = audit(rows_of(pairs, "unknown"), {}, resamples=300)
        found[path] = (paired.verdict.value, alone.verdict.value, unsaid.verdict.value)
    assert found
    wanted = ("uses EEG", "content above its null", "content of unproven origin")
    assert {path: said for path, said in found.items() if said != wanted} == {}
