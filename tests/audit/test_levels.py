"""Levels of content: a decoder of the class alone, a decoder of words, and one that knows nothing."""

import dataclasses
import json

import numpy as np
import pytest

from eeg2text_jax.auditing import levels
from eeg2text_jax.auditing.align import align
from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.endpoints import primary_endpoint
from eeg2text_jax.auditing.levels import curve, labels_of, measure_levels, sampled_groups
from eeg2text_jax.auditing.verdict import verdict_mde
from eeg2text_jax.cli import main
from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.foreign import ForeignRow, complete

CLASSES, EACH = 12, 8


def planted(kind: str, seed: int = 0):
    """96 sentences of 12 classes; predictions name the class, a word of the sentence, or neither."""
    rng = np.random.default_rng(seed)
    groups, rows, control = {}, [], []
    for number in range(CLASSES * EACH):
        group, noise = number // EACH, " ".join(f"w{i}" for i in rng.integers(40, size=3))
        text = f"class{group} thing{group} {noise} own{number}"
        groups[text] = f"c{group}"
        told = {"class": f"class{group} thing{group}", "words": f"own{number}", "nothing": "a"}[kind]
        for target, start in ((rows, told), (control, "a")):
            tail = " ".join(f"w{i}" for i in rng.integers(40, size=4))
            target.append(ForeignRow(number + 1, text, {("eeg", "free_running"): f"{start} {tail}"}))
    aligned = align({"eeg": complete(rows, "x"), "noise": complete(control, "x")})
    return aligned, groups


def found(kind: str, seed: int = 0):
    aligned, groups = planted(kind, seed)
    labels = labels_of(aligned, groups, "class")
    return measure_levels(aligned, labels, "class", primary_endpoint(), resamples=200, rng=np.random.default_rng(0))[0]


def test_a_decoder_of_the_class_has_content_between_classes_and_none_within():
    level = found("class")
    assert level.control == "noise"
    assert level.groups == CLASSES
    assert level.between.p < 0.01
    assert level.between.effect > 10
    assert level.within.p > 0.05
    assert abs(level.within.effect) < level.within.mde


def test_a_decoder_of_words_has_content_within_classes_and_none_between():
    level = found("words")
    assert level.within.p < 0.01
    assert level.within.effect > 5
    assert abs(level.between.effect) < min(level.between.mde, 0.2 * level.within.effect)


def test_a_decoder_of_nothing_is_seldom_given_a_level():
    """At most 4 of 20 sets at the 5 % level: a sound test exceeds that in 3 of 1000 runs."""
    sets = [found("nothing", seed) for seed in range(20)]
    assert sum(level.between.p <= 0.05 for level in sets) <= 4
    assert sum(level.within.p <= 0.05 for level in sets) <= 4


def test_the_curve_falls_for_a_decoder_of_the_class_and_stays_for_words():
    falls, stays = (
        curve(
            planted(kind)[0], primary_endpoint(), "noise", resamples=200, rng=np.random.default_rng(0), clusters=(1, 12)
        )
        for kind in ("class", "words")
    )
    assert [count for count, _ in falls] == [1, 12]
    assert falls[1][1].effect < 0.5 * falls[0][1].effect
    assert stays[1][1].effect > 0.8 * stays[0][1].effect


def test_references_without_a_label_are_refused():
    aligned, groups = planted("class")
    groups.popitem()
    with pytest.raises(UserError, match="1 references have no label"):
        labels_of(aligned, groups, "class")
    with pytest.raises(UserError, match="96 references have no label"):
        labels_of(aligned, dict.fromkeys(aligned.references, " "), "class")
    with pytest.raises(UserError, match="the same label"):
        labels_of(aligned, dict.fromkeys(aligned.references, "one"), "class")


def written(tmp_path, kind: str, header: str = "target,prediction,Object class"):
    """The EEG's and the control's file of a planted set, and a CSV of the classes."""
    aligned, groups = planted(kind, seed=1)
    for condition in aligned.conditions:
        lines = [f"{row.reference},{row.prediction},{groups[row.reference]}" for row in condition.rows]
        cut = [line if header.count(",") == 2 else line.rpartition(",")[0] for line in lines]
        (tmp_path / f"{condition.name}.csv").write_text("\n".join([header, *cut]))
    lines = [f"{reference},{label}" for reference, label in groups.items()]
    (tmp_path / "meta.csv").write_text("\n".join(["reference,class", *lines]))
    arguments = ["--eeg", tmp_path / "eeg.csv", "--control", tmp_path / "noise.csv", "--mode", "free_running"]
    return [str(argument) for argument in ["audit", "--resamples", "200", *arguments]]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("class", "tells the category (Object class); nothing found within categories."),
        ("words", "nothing found between categories (Object class); found within categories."),
    ],
)
def test_the_command_says_the_level(tmp_path, printed_by, kind, said):
    arguments = written(tmp_path, kind)
    outputs = ["--json", str(tmp_path / "a.json"), "--html", str(tmp_path / "a.html")]
    out = printed_by([*arguments, "--groups", "Object class", *outputs])
    assert said in out
    assert "Object class (12)  noise    between groups" in out
    [level] = json.loads((tmp_path / "a.json").read_text())["levels"]
    found = audit_of(kind).levels[0]
    assert level["within"]["effect"] == pytest.approx(found.within.effect)
    page = (tmp_path / "a.html").read_text()
    assert "Between and within groups" in page
    assert f"{found.within.effect:+.2f}" in page


def audit_of(kind: str, **options):
    aligned, groups = planted(kind, seed=1)
    eeg, noise = (condition.rows for condition in aligned.conditions)
    options = {"resamples": 200, "mode": None, "groups": {"class": groups}, **options}
    rows = [[dataclasses.replace(row, mode="free_running") for row in rows] for rows in (eeg, noise)]
    return audit(rows[0], {"noise": rows[1]}, **options)


def test_a_likely_column_of_the_file_is_used_and_named(tmp_path, printed_by):
    arguments = written(tmp_path, "class", header="target,prediction,Expected object")
    out = printed_by(arguments)
    assert "grouped by expected object, chosen by its name; --groups=COLUMN takes another column" in out
    assert "tells the category (expected object); nothing found within categories." in out


def test_without_groups_the_curve_is_printed_and_drawn_where_content_is_found(tmp_path, capsys, printed_by):
    arguments = written(tmp_path, "class", header="target,prediction,number")
    out = printed_by([*arguments, "--html", str(tmp_path / "a.html"), "--json", str(tmp_path / "a.json")])
    assert "ever finer clusters of the references, by their words (number of clusters): +" in out
    assert "no test of a level" in out
    assert "How fine the content is" in (tmp_path / "a.html").read_text()
    points = json.loads((tmp_path / "a.json").read_text())["curve"]
    assert [count for count, _ in points] == [1, 5, 10, 20]
    assert points[-1][1]["effect"] < 0.6 * points[0][1]["effect"]
    main(written(tmp_path, "nothing", header="target,prediction,number"))
    assert "clusters" not in capsys.readouterr().out


def test_levels_are_of_the_difference_against_the_control_under_one_permutation():
    """A control that tells the class as well as the EEG leaves nothing, and no other figure moves."""
    aligned, groups = planted("class")
    rows = [dataclasses.replace(row, mode="free_running") for row in aligned.eeg.rows]
    alike = [dataclasses.replace(row, prediction=" ".join(row.prediction.split()[::-1])) for row in rows]
    [level] = audit(rows, {"alike": alike}, resamples=200, groups={"class": groups}).levels
    for side in (level.between, level.within):
        assert side.scores[0] == pytest.approx(side.scores[1])
        assert side.effect == pytest.approx(0)
        assert side.permutation_sd == pytest.approx(0)  # two permutations would leave their spread
    with_groups, without = audit_of("class"), audit_of("class", groups=None)
    assert without.levels == []
    assert with_groups.deciding.primary.p == without.deciding.primary.p
    assert with_groups.deciding.primary.interval == without.deciding.primary.interval


def test_without_groups_the_level_is_not_known():
    found = audit_of("words", groups=None)
    assert found.verdict.value == "uses EEG"
    assert found.deciding.sentence.endswith("of the sentence or only of its kind: not known.")
    assert "kind" not in audit_of("nothing", groups=None).sentence


def test_groups_come_from_the_metadata(tmp_path, printed_by, refused):
    arguments = written(tmp_path, "class", header="target,prediction")
    meta = ["--meta", str(tmp_path / "meta.csv")]
    said = printed_by([*arguments, *meta, "--groups", "class"])
    assert "tells the category (class); nothing found within categories." in said
    for given in ([*meta, "--groups", "klass"], ["--groups", "class"], ["--groups", "class,"]):
        error = refused([*arguments, *given])
        assert "there is no such column" in error or "expected reference and at least" in error


def test_a_column_of_rows_is_no_group(tmp_path, refused):
    _, groups = planted("class")
    texts = [*groups, *groups]
    lines = [f"{text},a b c,{'early' if number < len(groups) else 'late'},c" for number, text in enumerate(texts)]
    (tmp_path / "eeg.csv").write_text("\n".join(["target,prediction,half,one", *lines]))
    for column, message in (("half", "96 of 96 references have several labels"), ("one", "the same label")):
        assert message in refused(["audit", "--resamples=100", f"--eeg={tmp_path / 'eeg.csv'}", f"--groups={column}"])


def test_content_between_groups_is_that_of_predictions_for_other_sentences_of_the_group():
    """By hand, with a group of one sentence, which has no other and is left out."""
    aligned, groups = planted("class")
    labels, endpoint = labels_of(aligned, groups, "class"), primary_endpoint()
    labels[0] = CLASSES
    options = {"resamples": 20, "rng": np.random.default_rng(0)}
    between = measure_levels(aligned, labels, "class", endpoint, **options)[0].between
    for place, condition in enumerate(aligned.conditions):
        texts = [condition.texts[rows[0]] for rows in condition.by_sentence()]
        table = endpoint.metric.pairwise(texts, aligned.references)
        own, other = 0, 0
        for t in range(1, len(labels)):
            means = [
                table[[s for s in range(1, len(labels)) if labels[s] == group and s != t], t].mean(0)
                for group in range(CLASSES)
            ]
            own += means[labels[t]]
            other += np.delete(means, labels[t], axis=0).mean(0)
        assert between.scores[place] == pytest.approx(float(endpoint.score(own)))
        assert between.nulls[place] == pytest.approx(float(endpoint.score(other)))


def test_the_curve_is_of_the_difference_to_the_control():
    aligned, _ = planted("words")
    alike = dataclasses.replace(aligned.eeg, name="alike")
    same = dataclasses.replace(aligned, conditions=(*aligned.conditions, alike))
    options = {"resamples": 20, "rng": np.random.default_rng(0), "clusters": (1,)}
    ((_, found),) = curve(same, primary_endpoint(), "alike", **options)
    assert found.effect == pytest.approx(0)
    ((_, alone),) = curve(same, primary_endpoint(), "", **options)
    assert alone.effect > 5


def test_within_groups_no_stratum_mixes_tasks(monkeypatch):
    given = []
    monkeypatch.setattr(levels, "content_tables", lambda aligned, strata, *_, **__: given.append(strata) or [])
    aligned, groups = planted("class")
    tasks = np.array(["A", "B"] * (CLASSES * EACH // 2))
    mixed, labels = dataclasses.replace(aligned, tasks=tuple(tasks)), labels_of(aligned, groups, "class")
    levels._within(mixed, labels, primary_endpoint(), 10, np.random.default_rng(0), 6)
    (strata,) = given
    assert len(set(strata.tolist())) == len(set(zip(strata.tolist(), tasks, labels.tolist(), strict=True)))


def test_groups_are_a_sample_where_others_are_known_and_enough_are_tested():
    labels = {"many": np.arange(12) % 5, "all": np.arange(12) % 6, "few": np.arange(12) % 4}
    more = {f"text {i}": f"group {i % 7}" for i in range(14)} | {"no label": ""}
    known = {"many": more, "all": {f"text {i}": f"group {i % 6}" for i in range(14)}, "few": more}
    (found,) = sampled_groups(labels, known)
    assert (found.labels is labels["many"], found.tested, found.known) == (True, 5, 7)


def test_labels_of_other_texts_raise_the_detectable_effect_where_some_classes_are_decoded_better():
    aligned, groups = planted("class")
    rows, control = ([dataclasses.replace(row, mode="free_running") for row in c.rows] for c in aligned.conditions)
    rows = [dataclasses.replace(r, prediction="a b c d") if "class1" in r.reference else r for r in rows]
    others = {f"trained on {k}": f"other class {k}" for k in range(100)}
    without, with_others = (
        audit(rows, {"noise": control}, resamples=200, groups={"class": groups | more}) for more in ({}, others)
    )
    said = "12 of 112 groups by class are tested"
    assert (said in " ".join(without.notes), said in " ".join(with_others.notes)) == (False, True)
    less, more = without.deciding, with_others.deciding
    assert verdict_mde(more.primary, more.derived.values()) > 1.2 * verdict_mde(less.primary, less.derived.values())
    for a, b in zip(more.contrasts, less.contrasts, strict=True):
        assert (a.effect, a.p, a.interval, a.smallest_margin) == (b.effect, b.p, b.interval, b.smallest_margin)
        assert a.mde >= b.mde
