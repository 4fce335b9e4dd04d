"""`eeg2text compare`: decoders of the same sentences, side by side."""

import json

import numpy as np
import pytest
from rows import changed, edited, simulated_rows
from scipy.stats import norm

from eeg2text_jax.commands.cli import main
from eeg2text_jax.commands.compare import compare_systems
from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.auditing.table import BY_NAME
from eeg2text_jax.instrument.predictions.file import write_predictions


@pytest.fixture(scope="module")
def systems():
    """A decoder that has a quarter of its rows right, and one that knows nothing."""
    _, noise = simulated_rows()
    return {"good": edited(noise, lambda r, _: r.reference, 0.25), "bad": noise}


def as_eeg(rows):
    return changed(rows, eval_condition="eeg", train_condition="eeg")


def test_files_are_compared_by_content_and_pairs(systems, tmp_path, capsys):
    for name, rows in systems.items():
        write_predictions(tmp_path / f"{name}.jsonl", {}, as_eeg(rows))
    files = [str(tmp_path / f"{name}.jsonl") for name in systems]
    tables = [f"--json={tmp_path / 'c.json'}", f"--markdown={tmp_path / 'c.md'}", f"--tex={tmp_path / 'c.tex'}"]
    assert main(["compare", *files, *tables]) == 0
    good, bad = json.loads((tmp_path / "c.json").read_text())["systems"]
    (pair,) = json.loads((tmp_path / "c.json").read_text())["pairs"]
    assert float(good["content"]) > 10
    assert good["p (Holm)"] == pair["p (Holm)"] == "< 0.001"
    assert float(bad["p"]) > 0.05
    assert float(pair["points"]) == pytest.approx(float(good["content"]) - float(bad["content"]), abs=0.011)
    assert pair["difference in content"] in (tmp_path / "c.md").read_text()
    assert (tmp_path / "c.tex").read_text().count("tabular") == 4
    assert main(["compare", *files[::-1], *tables]) == 0
    (turned,) = json.loads((tmp_path / "c.json").read_text())["pairs"]
    assert float(turned["points"]) == -float(pair["points"])
    assert turned["p"] == pair["p"]


def test_the_p_of_a_pair_is_that_of_its_interval_to_both_sides(systems):
    few = edited(systems["bad"], lambda r, _: r.reference, 0.02)
    made = {"few": as_eeg(few), "bad": as_eeg(systems["bad"])}
    for pair in (made, dict(reversed(made.items()))):
        ((_, points, interval, p, _),) = compare_systems(pair).pair_rows()
        low, high = map(float, interval.split(" to "))
        beyond = norm.sf(abs(float(points)) / ((high - low) / (2 * norm.ppf(0.975))))
        assert float(p) == pytest.approx(2 * beyond, rel=0.2)


def test_three_decoders_of_other_readers_in_either_mode_and_by_another_endpoint(systems, tmp_path, capsys):
    """Teacher-forced rows of the file hold the targets of the decoder that knows nothing, and no others."""
    some = [r for r in edited(systems["bad"], lambda r, _: r.reference, 0.1) if r.subject != "subject 2"]
    made = {name: as_eeg(rows) for name, rows in (("good", systems["good"]), ("some", some), ("bad", systems["bad"]))}
    for name, rows in made.items():
        forced = changed(
            rows, mode="teacher_forced", **({"prediction": lambda r: r.reference} if name == "bad" else {})
        )
        write_predictions(tmp_path / f"{name}.jsonl", {}, [*forced, *rows])
    found = compare_systems(made)
    assert found.rows == {"good": 144, "some": 96, "bad": 144}
    for name, rows in made.items():
        alone, (scores, nulls) = (
            audit(rows).conditions[0].content,
            (found.systems[name].scores, found.systems[name].nulls),
        )
        assert (found.systems[name].effect, scores, nulls) == (pytest.approx(alone.effect), alone.scores, alone.nulls)
        assert (found.systems[name].p, found.systems[name].se) == (alone.p, pytest.approx(alone.se))
    assert [*found.pairs] == [("good", "some"), ("good", "bad"), ("some", "bad")]
    for (a, b), pair in found.pairs.items():
        assert pair.effect == pytest.approx(found.systems[a].effect - found.systems[b].effect)
    paired = audit(made["good"], {"other": changed(made["bad"], eval_condition="noise")}).deciding.contrast
    assert found.pairs["good", "bad"].interval(1.96) == pytest.approx(paired.interval(1.96))
    raw = np.array([c.p for c in found.systems.values()] + [2 * min(c.p, c.p_less) for c in found.pairs.values()])
    order = raw.argsort()
    steps = np.maximum.accumulate(raw[order] * np.arange(6, 0, -1))
    assert np.array(found.adjusted)[order] == pytest.approx(np.minimum(steps, 1))
    fewer = [r for r in made["good"] if r.sentence_id not in ("s3", "s4")]
    less = compare_systems({"bad": made["bad"], "good": fewer})
    assert (less.sentences, less.rows) == (46, {"bad": 138, "good": 138})
    assert less.notes[0] == "2 sentences are not in all files and are left out"
    arguments = ["compare", *(str(tmp_path / f"{name}.jsonl") for name in made), f"--json={tmp_path / 'c.json'}"]
    assert main(arguments) == 0
    written = json.loads((tmp_path / "c.json").read_text())
    for side, rows, adjusted in (
        (written["systems"], found.system_rows(), found.adjusted[:3]),
        (written["pairs"], found.pair_rows(), found.adjusted[3:]),
    ):
        assert [tuple(one.values()) for one in side] == [tuple(row) for row in rows]
        assert [one["p (Holm)"] for one in side] == [f"{p:.3f}" if p >= 0.001 else "< 0.001" for p in adjusted]
    for row, one in zip(written["systems"], found.systems.values(), strict=True):
        low, high = map(float, row["95 % CI"].split(" to "))
        assert high - low == pytest.approx(2 * norm.ppf(0.975) * one.se, rel=0.06)
    for more, best in (("--mode=teacher_forced", "bad"), ("--endpoint=rouge-1", "good")):
        assert main([*arguments, more]) == 0
        read = json.loads((tmp_path / "c.json").read_text())["systems"]
        assert max(read, key=lambda one: float(one["content"]))["system"] == best
    assert "ROUGE-1 F in points" in capsys.readouterr().out
    assert [tuple(one.values()) for one in read] == compare_systems(made, endpoint=BY_NAME["rouge-1"]).system_rows()
    for name, rows in made.items():
        lines = ["truth,prediction", *(f"{row.reference},{row.prediction}" for row in rows)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    tables = [str(tmp_path / f"{name}.csv") for name in made]
    assert main(["compare", *tables, "--mode=free_running"]) == 0, "the mode of files that do not state one"


def test_decoders_of_other_seeds_are_compared(systems):
    good, bad = as_eeg(systems["good"]), as_eeg(systems["bad"])
    found = compare_systems({"good": good, "bad": changed(bad, seed=3)})
    assert found.pair_rows() == compare_systems({"good": good, "bad": bad}).pair_rows()


def test_what_cannot_be_compared_is_refused(systems, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    write_predictions(tmp_path / "good.jsonl", {}, as_eeg(systems["good"]))
    for arguments, said in (
        (["good.jsonl"], "expected two files of predictions"),
        (["run", "run"], "is a folder; `eeg2text table DIR...` joins finished runs"),
        (["run", "good.jsonl"], "is a folder"),
    ):
        assert main(["compare", *(str(tmp_path / a) for a in arguments)]) == 2
        assert said in capsys.readouterr().err
