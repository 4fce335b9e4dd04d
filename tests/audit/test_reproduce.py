"""The papers' tables: their shape, cell by cell, from tiny runs; prices, commands, and any runs in one table."""

import csv
import dataclasses
import itertools
import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from rows import changed, edited, simulated_rows

from eeg2text_jax import audit
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.cli import main
from eeg2text_jax.commands.paper_tables import TABLES, examples_table, footnotes, pairs_table, runs_of
from eeg2text_jax.commands.reproduce import (
    Wanted,
    commands,
    demo_seconds,
    make_demo_data,
    make_runs,
    parse_part,
    price_of,
    table_of,
)
from eeg2text_jax.instrument.metrics.score import score_cells
from eeg2text_jax.instrument.predictions.file import MODES, write_predictions
from eeg2text_jax.judge.pairs import Pair, Parts
from eeg2text_jax.training.configuration import parse_config


def wanted(table, out, **changes):
    usual = Wanted(table, Path(out), Path(out), None, "", "", ("one", "two"), False, True, ())
    return dataclasses.replace(usual, **changes)


@pytest.fixture(scope="module")
def rows():
    _, noise = simulated_rows()
    good = edited(noise, lambda r, _: r.reference, 0.25)
    cells = [
        changed(good if train == test == "eeg" else noise, train_condition=train, eval_condition=test, mode=mode)
        for train in ("eeg", "noise") for test in ("eeg", "noise") for mode in ("free_running", "teacher_forced")
    ]  # fmt: skip
    return [
        dataclasses.replace(row, prediction_tokens=ids(row.prediction), reference_tokens=ids(row.reference))
        for cell in cells for row in cell
    ]  # fmt: skip


def ids(text):
    return tuple(sum(map(ord, word)) for word in text.split())


def make_run(folder, rows, split="f", epochs=2):
    folder.mkdir(parents=True)
    write_predictions(folder / "predictions.jsonl", {"tokenizer": "bpe-600"}, rows)
    pretrain = {"enabled": True, **{stage: {"steps": 40, "epochs": 2} for stage in ("snapshot", "series")}}
    model = {"encoder": "unicorn", "checkpoint": "", "backbone": "bart"}
    config = {"grid": {"seeds": [0]}, "split": {"method": split}, "pretrain": pretrain, "model": model,
              "data": {"source": "zuco.h5"}}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "split.json").write_text("{}")
    (folder / "results.json").write_text("{}")
    for stage in ("snapshot", "series"):
        (folder / stage).mkdir()
        logged = [{"step": 0, "zero/eeg/0": 0.8, "mean/eeg/0": 0.7}]
        logged += [{"step": step, "dev_loss/eeg/0": loss} for step, loss in ((20, 0.02), (40, 0.05))]
        (folder / stage / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in logged))


@pytest.mark.quick("jo-2", "fair-3", "fair-4")
@pytest.mark.parametrize("name", ["jo-2", "jo-3", "fair-2", "fair-3", "fair-4"])
def test_each_row_of_the_paper_has_one_of_ours_of_the_same_width(name, tmp_path, rows):
    runs = runs_of(name)
    for run in runs[:-1]:
        make_run(tmp_path / run.name, rows)
    table = table_of(wanted(name, tmp_path))
    texts = TABLES[name].texts
    assert [(group, head) for group, head in table.columns[1:]] == list(TABLES[name].columns)
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert [tuple(row[1:]) for row in table.rows if row[0] == "paper"] == list(TABLES[name].rows)
    ours = [row for row in table.rows if row[0] == "here"]
    assert [tuple(row[1 : 1 + texts]) for row in ours] == [row[:texts] for row in TABLES[name].rows]
    missing = [row for row in ours if "-" in row[1 + texts :]]
    assert len(missing) == (8 if name.startswith("jo") else 1)  # those of the last run
    assert all(float(cell) >= 0 for row in ours if row not in missing for cell in row[1 + texts :])
    assert any("tokens" in heading and "N=1" in heading for heading in table.headings)
    assert any("package rouge" in heading for heading in table.headings)


def other_rows(number):
    """Each training condition, test condition, mode and seed is right in another share of its rows."""
    _, noise = simulated_rows(number, sentences=10, subjects=2)
    found = []
    for k, (train, test, mode, seed) in enumerate(itertools.product(("eeg", "noise"), ("eeg", "noise"), MODES, (0, 1))):
        own = edited(noise, lambda r, _: r.reference, (k + 1) / 20, seed=k)
        found += changed(own, train_condition=train, eval_condition=test, mode=mode, seed=seed)
    return changed(found, prediction_tokens=lambda r: ids(r.prediction), reference_tokens=lambda r: ids(r.reference))


def figures_of(rows, columns, **wanted):
    own = [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]
    cells = [score_cells([r for r in own if r.seed == seed], profile="paper")["cells"][0] for seed in (0, 1)]
    return [f"{statistics.mean(cell['metrics'][name]['value'] for cell in cells):.2f}" for name in columns]


BLEU, ROUGE = [f"token_bleu-{n}" for n in (1, 2, 3, 4)], [f"rouge-1-{figure}" for figure in "prf"]


def test_figures_are_those_of_each_run_arm_condition_and_mode(tmp_path, printed_by):
    runs = {run: other_rows(k) for k, run in enumerate([*runs_of("jo-2"), *runs_of("fair-4")])}
    for run, rows in runs.items():
        make_run(tmp_path / run.name, rows)
    found = [row for row in table_of(wanted("jo-2", tmp_path)).rows if row[0] == "here"]
    fed, columns, expected = {"EEG": "eeg", "Random": "noise"}, [*BLEU, *ROUGE, "wer"], []
    for run, label in zip(runs_of("jo-2"), ("BART", "Pegasus", "T5"), strict=True):
        for mode, suffix in (("free_running", ""), ("teacher_forced", " w/tf")):
            for train, test in itertools.product(fed, fed):
                about = {"train_condition": fed[train], "eval_condition": fed[test], "mode": mode}
                expected.append(["here", label + suffix, train, test, *figures_of(runs[run], columns, **about)])
    assert sorted(found) == sorted(expected)
    assert len({tuple(row[4:]) for row in found}) == len(found) == 24
    columns = [*BLEU, *(f"rouge-1-{figure}" for figure in "rpf")]
    for run, (data, model, *_) in zip(runs_of("fair-4"), TABLES["fair-4"].rows, strict=True):
        own = [row for row in table_of(wanted("fair-4", tmp_path)).rows if row[1:3] == [data, model]]
        assert [row[0] for row in own] == ["paper", "here", "here, w/tf", "here, noise"]
        for row, condition, mode in zip(own[1:], ("eeg", "eeg", "noise"), (*MODES[::-1], "free_running"), strict=True):
            about = {"train_condition": condition, "eval_condition": condition, "mode": mode}
            assert row[3:] == figures_of(runs[run], columns, **about)
    one, other = (run.name for run in runs_of("jo-2")[:2])
    (tmp_path / one / "split.json").write_text(json.dumps({"tasks": {"NR": 3, "SR": 2}}))
    config = json.loads((tmp_path / other / "config.json").read_text())
    config["pretrain"]["enabled"], config["model"]["checkpoint"] = False, "some/where"
    (tmp_path / other / "config.json").write_text(json.dumps(config))
    printed_by(["table", str(tmp_path / one), str(tmp_path / other), f"--out={tmp_path / 'table.csv'}"])
    lines = list(csv.DictReader((tmp_path / "table.csv").read_text(encoding="utf8").splitlines()))
    assert {(line["run"], line["model"], line["tasks"]) for line in lines} == {
        (one, "unicorn + bart, random", "NR, SR"), (other, "unicorn* + where", "zuco.h5")
    }  # fmt: skip
    for run, line in ((run, line) for run in runs for line in lines if line["run"] == run.name):
        about = {"train_condition": line["training"], "eval_condition": line["evaluation"]}
        (mean,) = figures_of(runs[run], ["wer"], mode=line["mode"].replace("-", "_"), **about)
        assert line["WER (%)"].split()[0] == mean


def test_table_4_of_jo_has_three_sentences_in_five_lines(tmp_path, rows):
    make_run(tmp_path / runs_of("jo-4")[0].name, rows)
    table = table_of(wanted("jo-4", tmp_path))
    assert [row[1] for row in table.rows] == ["Ground truth", "EEG w/tf", "Random w/tf", "EEG", "Random"] * 3
    assert all(text not in ("", "-") for *_, text in table.rows)
    assert any("**" in text for _, label, text in table.rows if label in ("Ground truth", "EEG w/tf"))
    assert not any("**" in text for _, label, text in table.rows if label in ("EEG", "Random"))


def test_figure_4_has_a_panel_a_data_set_and_stage_and_a_curve_a_split(tmp_path, rows):
    runs = runs_of("fair-figure-4")
    for run in runs:
        make_run(tmp_path / run.name, rows, split=run.argument.partition("method=")[2][0])
    table = table_of(wanted("fair-figure-4", tmp_path))
    assert [row[1:4] for row in table.rows] == [
        [data, f"({method})", stage]
        for data, methods in (("Narratives", "abcdef"), ("ZuCo", "acdf"))
        for method in methods for stage in ("snapshot", "series")
    ]  # fmt: skip
    assert {tuple(row[4:]) for row in table.rows} == {("0.0200", "1.0000", "0.0500", "0.8000", "0.7000")}
    assert (tmp_path / "fair-figure-4.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["latte-1", "latte-2", "latte-3"])
def test_tables_of_pairs(name, tmp_path):
    make_demo_data(wanted(name, tmp_path))
    table = table_of(wanted(name, tmp_path))
    texts = TABLES[name].texts
    ours = [tuple(row[1:]) for row in table.rows if row[0] == "here"]
    assert [row[:texts] for row in ours] == [row[:texts] for row in TABLES[name].rows]
    assert [len(row) for row in ours] == [len(row) for row in TABLES[name].rows]
    assert all(cell and cell != "-" for row in ours for cell in row)
    if name == "latte-3":
        assert all(row[-1].startswith("G: ") and " T: " in row[-1] for row in ours)


def test_tables_of_pairs_count_the_pairs_of_each_part_label_and_severity():
    def made(count, kept, rated, speaker, severity):
        return [Pair(f"{rated} {speaker} {k}", f"heard {k}", k < kept, rated, speaker, severity) for k in range(count)]

    train = [*made(5, 3, "0", "A", "Mild"), *made(3, 1, "2", "B", "Severe")]
    dev, test = made(4, 1, "0", "C", "Severe"), made(3, 2, "1", "D", "Severe")
    parts = Parts(train, dev, test, 0, [], [])
    rows = {
        name: [row[1:] for row in pairs_table(name, [*test, *train, *dev], parts).rows if row[0] == "here"]
        for name in ("latte-1", "latte-2", "latte-3")
    }
    assert rows["latte-1"] == [["# Speakers", "1", "-", "3"]]
    assert rows["latte-2"] == [
        ["# Examples", "8", "3", "4"],
        ["Meaning Preserved", "50.0%", "66.7%", "25.0%"],
    ]
    assert [(row[0], *row[-2:]) for row in rows["latte-3"]] == [
        ("0", "9 (60%)", "G: 0 A 0 T: heard 0"),
        ("1", "3 (20%)", "G: 1 D 0 T: heard 0"),
        ("2", "3 (20%)", "G: 2 B 0 T: heard 0"),
    ]


def test_the_papers_sentences_are_the_examples_if_all_three_are_there(tmp_path, rows):
    begun = ("Everything its title", "Joseph H. Ball", "It's not a particularly")
    texts = sorted({row.reference for row in rows})
    for count in (3, 2):
        new = {texts[-1 - 4 * k]: f"{begin} and so on" for k, begin in enumerate(begun[:count])}
        named = [dataclasses.replace(row, reference=new.get(row.reference, row.reference)) for row in rows]
        run = tmp_path / str(count) / runs_of("jo-4")[0].name
        make_run(run, named)
        table = examples_table(run.parent).rows
        truths = [row[2] for row in table if row[1] == "Ground truth"]
        assert len(truths) == 3
        assert ({*truths} == {*new.values()}) == (count == 3)


SLICES = ("all", "prompted", "unprompted", "Severe", "Moderate", "Mild")
JUDGED = ("LATTEScore's judge", "meaning[lr-bertscore]", "meaning[lr-similarity]")


def judge_results(number):
    """Results of a judge whose AUC, counts and sizes are other ones for each judge, classifier and slice."""
    slices = [
        {"slice": name, "n": 9 + k, "preserved": 4,
         "auc": {one: {"value": (500 + 100 * number + 10 * c + k) / 1000} for c, one in enumerate(JUDGED)}}
        for k, name in enumerate(SLICES)
    ]  # fmt: skip
    line = {"name": "S1", "etiology": "ALS", "severity": "Mild", "n": 5, "word_accuracy": 80.0, "human": 70.0}
    sizes = {one: 1e6 * (10 * number + c) for c, one in enumerate(JUDGED, 1)}
    return {"slices": slices, "speakers": {"speakers": [{**line, "latte": 69.9}]}, "parameters": sizes}


def test_table_4_of_lattescore_has_two_judges_by_speech_type_and_severity(tmp_path, printed_by):
    for number, run in enumerate(runs_of("latte-4")):
        (tmp_path / run.name / "judge").mkdir(parents=True)
        (tmp_path / run.name / "results.json").write_text(json.dumps(judge_results(number)))
    table = table_of(wanted("latte-4", tmp_path))
    counts, *ours = [row for row in table.rows if row[0].startswith("here")]
    places = [[name.lower() for name in SLICES].index(heading.lower()) for _, heading in table.columns[4:]]
    assert sorted(places) == [1, 2, 3, 4, 5]
    places = [0, *places]
    assert counts == ["here", "examples", "", *(str(9 + k) for k in places)]
    assert [tuple(row[1:3]) for row in ours] == [row[:2] for row in TABLES["latte-4"].rows[1:]]
    of_classifiers = [(0, 1), (0, 2), (0, 0), (1, 0)]  # the baselines, then both judges
    for row, (number, c) in zip(ours, of_classifiers, strict=True):
        assert row[0] == f"here, {10 * number + c + 1:.1f}M"
        assert row[3:] == [f"{(500 + 100 * number + 10 * c + k) / 1000:.3f}" for k in places]
    (run,) = runs_of("latte-5")
    (tmp_path / run.name / "judge").mkdir(parents=True)
    results = judge_results(0)
    for second in (None, {**results["speakers"]["speakers"][0], "name": "S2", "latte": 70.0}):
        results["second_test"] = second and {"speakers": {"speakers": [second]}}
        (tmp_path / run.name / "results.json").write_text(json.dumps(results))
        speakers = table_of(wanted("latte-5", tmp_path)).rows
        assert len(speakers) == 11
        own = ["S2", "70.0*"] if second else ["S1", "69.9"]
        assert speakers[-1] == ["here", own[0], "ALS", "Mild", "5", "80.0*", "70.0*", own[1]]
        assert [row[1] for row in speakers if row[5].endswith("*")] == ["S7", "S8", "S9", "S10", own[0]]
    printed = printed_by(["table", *(str(tmp_path / run.name) for run in runs_of("latte-4"))])
    assert printed.count("meaning[lr-bertscore]") == 2
    assert "severity severe" in printed


def test_any_runs_are_joined_under_their_split_and_in_the_papers_units(tmp_path, rows, printed_by, refused):
    """A run without a leak stands under no title that says that it leaks."""
    for name, split in (("one", "unique_text"), ("two", "c")):
        make_run(tmp_path / name, rows, split)
    files = [f"--out={tmp_path / f'table.{suffix}'}" for suffix in ("md", "tex", "csv")]
    printed = printed_by(["table", str(tmp_path / "one"), str(tmp_path / "two"), *files])
    assert "leak" not in printed
    lines = list(csv.DictReader((tmp_path / "table.csv").read_text(encoding="utf8").splitlines()))
    assert len(lines) == 2 * 8
    assert {line["split"] for line in lines} == {"unique_text", "c"}
    assert {line["model"] for line in lines} == {"unicorn + bart, random"}
    assert "BLEU-N tokens (%) N=1" in lines[0]
    assert "ROUGE-1, package rouge (%) F" in lines[0]
    assert (tmp_path / "table.tex").read_text().count(r"\\") > 16
    words = printed_by(["table", str(tmp_path / "one"), "--profile=standard"])
    assert "BLEU-N words (%) N=1" in words
    assert "none: is no finished run" in refused(["table", str(tmp_path / "none")])


def test_runs_are_compared_by_their_verdicts(tmp_path, rows, capsys):
    _, noise = simulated_rows()
    systems = {"good": edited(noise, lambda r, _: r.reference, 0.25), "bad": noise}
    for name, own in systems.items():
        make_run(tmp_path / name, rows)
        found = audit(changed(own, eval_condition="eeg", train_condition="eeg"), {"noise": noise, "zero": noise})
        (tmp_path / name / "audit.json").write_text(json.dumps(written := found.to_json()))
    assert main(["table", str(tmp_path / "good"), str(tmp_path / "bad")]) == 0
    *_, good, bad = capsys.readouterr().out.strip().splitlines()
    assert good.startswith("good  uses EEG (")
    assert bad.startswith("bad   equivalent to control")
    for control, p, p_seeds, shown in (("noise", 0.01, 0.25, "0.250"), ("zero", 0.25, 0.01, "0.250")):
        one = next(one for one in written["comparisons"] if one["contrast"]["control"] == control)
        one |= {"verdict": "underpowered", "p_equivalence": None}
        one["contrast"] |= {"p": p, "p_seeds": p_seeds, "p_less": 0.041, "effect": 12.34, "interval_90": [1.25, 23.5]}
        (tmp_path / "bad" / "audit.json").write_text(json.dumps(written | {"deciding": control, "mde": 7.89}))
        assert main(["table", str(tmp_path / "bad")]) == 0
        line = capsys.readouterr().out.strip().splitlines()[-1]
        assert all(figure in line.split() for figure in ("+12.34", shown, "7.89")), "of the deciding control"
        assert "+1.25 to +23.50" in line
    for changes, shown in (
        ({"verdict": "equivalent to control", "p_equivalence": 0.03}, " 0.030 (equivalence) "),
        ({"verdict": "control better", "p_equivalence": None}, " 0.041 (less) "),
    ):
        one |= changes
        (tmp_path / "bad" / "audit.json").write_text(json.dumps(written | {"deciding": "zero"}))
        assert main(["table", str(tmp_path / "bad")]) == 0
        assert shown in capsys.readouterr().out.strip().splitlines()[-1], "the p that belongs to the verdict"
    (tmp_path / "bad" / "audit.json").write_text("{}")
    assert main(["table", str(tmp_path / "bad")]) == 2
    assert "has no verdict of this version" in capsys.readouterr().err


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_footnotes_and_commands_that_parse(name, tmp_path):
    assert footnotes(name) or name == "latte-1"
    for demo in (True, False):
        asked = wanted(name, tmp_path, demo=demo, pairs="pairs.tsv", data=Path("data"))
        lines = commands(asked)
        assert len(lines) == len(set(lines)) == len({run.name for run in asked.runs}) == len(asked.runs)
        for run in asked.runs:
            command, config, *flags = asked.command(run)
            if command == "run":
                settings = parse_config([config, *flags], command, options=("workdir",)).settings
                assert settings.data.source.startswith("data/")


@pytest.mark.quick("jo-3-10050")
@pytest.mark.parametrize(("name", "steps"), [("jo-2", 9330), ("jo-3", 10050)])
def test_the_price_has_the_papers_steps_where_no_data_are(name, steps, tmp_path, printed_by):
    asked = wanted(name, tmp_path, demo=False)
    prices = [price_of(asked, run) for run in asked.runs]
    assert {price[0] for price in prices} == {steps}
    printed = printed_by(["reproduce", name, f"--out={tmp_path}", "--list", "--topology=v5e:2x4"])
    assert printed.count(f"{steps:,} steps") == 3
    lines, total = [line for line in printed.splitlines() if " steps, " in line], 0.0
    for run, (_, flops, memory, read), line in zip(asked.runs, prices, lines, strict=True):
        assert not read, "no volumes"
        hours = 1.15 * flops / (0.37 * 197e12) / 8 / 3600  # the peak of a v5e in bfloat16
        assert line.startswith(f"  {run.name}: ")
        assert line.endswith(f"an arm has {memory / 2**30:.1f} GiB; 8 x TPU v5e: {hours:.2f} h")
        total += hours
    assert f"price: {total:.2f} h on 8 x TPU v5e ({8 * total:.1f} chip-hours)" in printed
    assert printed.count("eeg2text run --config=paper:") == 3


def test_the_price_counts_the_products_of_every_stage(tmp_path):
    def priced(*overrides):
        asked = wanted("fair-3", tmp_path, demo=False, data=Path("data"), overrides=overrides)
        return np.array(price_of(asked, asked.runs[0])[:2])

    longer = [f"--config.pretrain.{stage}.epochs=30" for stage in ("snapshot", "series")]  # in place of 15
    text, usual, twice = priced("--config.pretrain.enabled=False"), priced(), priced(*longer)
    assert (usual > text).all()
    np.testing.assert_allclose(twice - text, 2 * (usual - text), rtol=1e-6)


def test_a_demonstration_makes_runs_of_one_configuration_once(tmp_path, rows):
    """50 and 80 epochs are cut to the same two; what is finished, and what it compiled, costs nothing."""
    asked = wanted("fair-3", tmp_path)
    twins = asked.twins()
    same = [run for run in asked.runs if twins[run] != run]
    assert same == [run for run in asked.runs if "epochs=80" in run.argument]
    assert wanted("fair-3", tmp_path, demo=False).twins() == {run: run for run in asked.runs}
    whole = demo_seconds(asked)
    first, second, *others = (run for run in asked.runs if run not in same)
    make_run(tmp_path / second.name, rows)
    after = demo_seconds(asked)
    for run in (first, *others):
        make_run(tmp_path / run.name, rows)
    assert whole > after > demo_seconds(asked)
    make_runs(asked, (1, 1), {})  # no process is started: the environment has no path
    assert not asked.missing
    assert {run for run in asked.runs if (tmp_path / run.name).is_symlink()} == set(same)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["jo-2"], "zuco_sr-nr-tsr.h5: there is no such data file; make it with `eeg2text prepare`"),
        (["latte-2"], "--pairs=FILE.tsv is missing"),
        (["jo-2", "--steps=3"], "reproduce has no such option"),
        (["latte-4", "--judges=one"], "expected two checkpoints"),
    ],
)
def test_what_is_missing_is_one_sentence(arguments, said, tmp_path, refused, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in refused(["reproduce", *arguments, f"--out={tmp_path}", "--topology=v5e:2x4"])


def test_a_part_is_k_of_n():
    assert parse_part("2/4") == (2, 4)
    with pytest.raises(UserError, match="expected K/N"):
        parse_part("5/4")


@pytest.mark.slow
def test_a_demonstration_ends_in_the_table(tmp_path, capfd):
    """One real run of two arms, made once; the second call only reads it."""
    call = ["reproduce", "jo-4", "--demo", f"--out={tmp_path}"]
    assert main(call) == 0
    first = capfd.readouterr().out
    assert "price: about" in first
    assert (tmp_path / "jo-4.csv").read_text().count("here,") == 15
    assert main(call) == 0
    again = capfd.readouterr().out
    assert "=== " in first
    assert "=== " not in again
