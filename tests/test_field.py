"""`tools/field.py` on a repository made for it: what is fetched, what cannot be had, the table, the page."""

import csv
import html
import json
import re
import subprocess
import sys
from pathlib import Path

import field
import pytest
from field_pages import HEADINGS, repositories

from eeg2text_jax.base.errors import UserError

TOOLS = Path(__file__).parents[1] / "tools"
RULE = "#" * 48 + "\n"


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def blocks(prediction: str) -> str:
    """Forty sentences; every fourth output repeats its sentence, the others say one thing."""
    sentences = [f"the {who} ran over hill number {i}" for i, who in enumerate(["red fox", "old cat"] * 20)]
    text = "target string: {}\npredicted string with tf: \npredicted string: {}\n" + RULE
    return "".join(text.format(s, s if i % 4 == 0 else prediction) for i, s in enumerate(sentences))


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> tuple[Path, Path, str]:
    """Clones and a manifest: a pair of EEG and noise in an older commit, and a file that never was."""
    clones = tmp_path_factory.mktemp("clones")
    repository = clones / "some+group"
    repository.mkdir()
    git(repository, "init", "-q")
    (repository / "out {eeg}.txt").write_text(blocks("He was the"))
    (repository / "noise.txt").write_text(blocks("It was the").replace("hill", "hill"))
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "results")
    commit = git(repository, "rev-parse", "HEAD")
    (repository / "out {eeg}.txt").write_text("overwritten\n")
    git(repository, "commit", "-qam", "later")
    manifest = clones / "manifest.tsv"
    lines = [
        ("a-eeg", "some/group", commit, "out {eeg}.txt", "BART", "eeg", "eeg", "both", "A", "a-noise", "", "a | note"),
        ("a-noise", "some/group", commit, "noise.txt", "BART", "eeg", "noise", "both", "B", "", "", ""),
        ("b", "some/group", commit, "gone.txt", "BART", "eeg", "eeg", "", "A", "", "", ""),
        ("c", "other/group", commit, "x.txt", "BART", "eeg", "eeg", "", "A", "", "", ""),
    ]
    with manifest.open("w", newline="") as file:
        csv.writer(file, delimiter="\t").writerows([field.FIELDS, *lines])
    return clones, manifest, commit


def run(published, tmp_path, monkeypatch, *more: str) -> list[dict]:
    clones, manifest, _ = published
    argv = ["field.py", "--manifest", manifest, "--clones", clones, "--out", tmp_path, *more]
    monkeypatch.setattr(sys, "argv", [*map(str, argv), "--json", str(tmp_path / "lines.json")])
    field.main()
    return json.loads((tmp_path / "lines.json").read_text())


def test_sets_are_had_at_their_commit_read_without_options_and_judged(published, tmp_path, monkeypatch, capsys):
    lines = run(published, tmp_path, monkeypatch)
    by_name = {(line["published"]["set"], line["mode"]): line for line in lines}
    free = by_name["a-eeg", "free-running"]
    assert (free["rows"], free["sentences"], free["control"]) == (40, 40, "a-noise")
    assert free["score"] == pytest.approx(free["null"] + free["content"])
    assert free["verdict"] not in ("", "refused", "not had")
    forced = by_name["a-eeg", "teacher-forced"]
    assert forced["bleu"] == 0
    assert any("every teacher_forced prediction" in note for note in free["notes"])
    assert "read as layout A, the manifest says B" in by_name["a-noise", "free-running"]["notes"]
    assert "gone.txt cannot be had" in by_name["b", ""]["sentence"]
    assert "no clone of other/group" in by_name["c", ""]["sentence"]
    assert "6 lines of 4 sets" in capsys.readouterr().out


def test_the_table_and_the_page_say_the_same(published, tmp_path, monkeypatch):
    lines = run(published, tmp_path, monkeypatch)
    markdown, page = ((tmp_path / name).read_text("utf8") for name in ("field.md", "field.html"))
    rows = re.findall(r"<tr data-verdict=.*?</tr>", page)
    assert len(rows) == len(lines)
    for line, row in zip(lines, rows, strict=True):
        labels, shown = zip(*re.findall(r'<td data-label="(.*?)">(.*?)</td>', row), strict=True)
        assert labels == HEADINGS[:-1]
        assert len(shown) == page.count("<th tabindex")
        assert html.unescape(f"| `{shown[0]}` | {' | '.join(shown[1:])} |") in markdown
        assert line["verdict"] == shown[1]
        codes = dict.fromkeys(code for code, *_ in line["findings"])
        assert all(code not in row for code in codes), "findings are folded"
    said = (
        "4 published sets are listed; 2 could not be obtained (b, c). The 2 files that were judged are of 1 "
        "repositories; 2 of them hold free-running and teacher-forced predictions and have a line for each, so 4 lines "
        "were judged."
    )
    assert said in markdown
    assert "a \\| note" in markdown
    assert published[2][:10] in markdown
    assert not re.search(r"<!--|<(script|link|img)[^>]*(src|href)=", page)
    assert "overwritten" not in markdown + page


def test_one_set_is_tried_without_writing_a_page(published, tmp_path, monkeypatch):
    lines = run(published, tmp_path, monkeypatch, "--only=a-eeg")
    assert {line["published"]["set"] for line in lines} == {"a-eeg"}
    assert lines[1]["control"] == "a-noise"
    assert [path.name for path in tmp_path.iterdir()] == ["lines.json"]


def test_a_manifest_without_the_control_is_refused(published, tmp_path):
    text = published[1].read_text().replace("a-noise\tsome", "a-other\tsome")
    (tmp_path / "m.tsv").write_text(text)
    with pytest.raises(UserError, match="the control 'a-noise' of 'a-eeg' is not in the manifest"):
        field.read_manifest(tmp_path / "m.tsv")


def test_the_manifest_names_every_set_once_at_a_whole_commit():
    sets = field.read_manifest(TOOLS / "site/field_manifest.tsv")
    assert len({one.set for one in sets}) == len(sets) >= 60
    assert len({(one.repository, one.path) for one in sets}) == len(sets)
    for one in sets:
        assert re.fullmatch(r"[0-9a-f]{40}", one.commit)
        assert one.mode in ("both", "free-running", "teacher-forced", "")
        assert all("noise" in name or "chance" in name for name in one.controls)
    controls = {one.set: one for one in sets}
    for one in sets:
        for name in one.controls:
            assert controls[name].eval_condition in ("noise", "label")
            assert controls[name].train_condition == one.train_condition
    assert repositories().keys() == {one.repository for one in sets}
