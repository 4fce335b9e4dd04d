"""Questions about content: of the sentence or of its kind, beyond its time or not, and which controls decide."""

import dataclasses
import html
import re

import numpy as np
import pytest
from rows import changed, row, simulated_rows

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.auditing.align import align
from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.auditing.notices import OF_TIME as OF_TIME_ASKED
from eeg2text_jax.instrument.auditing.notices import QUESTIONS, answer_groups, answer_time, labels_of, questions
from eeg2text_jax.instrument.auditing.result import result_text
from eeg2text_jax.instrument.auditing.table import WORDS, text_scorer
from eeg2text_jax.instrument.auditing.verdict import Comparison, Level, Time, Verdict
from eeg2text_jax.training.configuration import load_config
from eeg2text_testing.clock_decoders import Clocked, made
from eeg2text_testing.decoders import decoded, written

CLASSES, EACH = 12, 8


def planted(kind, seed=0):
    """96 sentences of 12 classes with words of their own; predictions name the class, own words, or none."""
    rng = np.random.default_rng(seed)
    classes, eeg, noise = {}, [], []
    for number in range(CLASSES * EACH):
        group = number // EACH
        text = f"class{group} thing{group} {' '.join(f'w{i}' for i in rng.integers(40, size=3))} own{number}"
        classes[text] = f"c{group}"
        told = {"class": f"class{group} thing{group}", "words": f"own{number}", "nothing": "a"}[kind]
        for side, start in ((eeg, told), (noise, "a")):
            tail = " ".join(f"w{i}" for i in rng.integers(40, size=4))
            side.append(row(number, reference=text, prediction=f"{start} {tail}", task=""))
    return eeg, {"noise": noise}, classes


def by_class(kind, seed=0, **options):
    eeg, controls, classes = planted(kind, seed)
    return audit(eeg, controls, groups={"class": classes}, **options)


def test_a_decoder_of_the_class_has_content_between_classes_and_none_within(tmp_path):
    found = by_class("class")
    (answer,) = found.groups
    assert (answer.control, answer.groups, answer.level) == ("noise", CLASSES, Level.KIND)
    assert answer.between.p < 0.01
    assert answer.between.effect > 10
    assert not answer.within.above
    assert abs(answer.within.effect) < answer.within.mde
    assert (found.verdict.value, found.exit_status) == ("uses EEG: of its kind", 11)
    assert result_text(found).endswith("VERDICT: uses EEG: of its kind")
    between, within = (
        f"{c.effect:+.2f} points (90 % CI {c.interval()[0]:+.2f} to {c.interval()[1]:+.2f}; p "
        for c in (answer.between, answer.within)
    )
    told = " ".join(result_text(found, verbose=True).split())
    assert re.search(rf"Groups by class \(12 groups\) against noise: between groups {re.escape(between)}", told)
    assert re.search(rf"; within groups {re.escape(within)}", told)
    found.to_html(tmp_path / "report.html")
    page = html.unescape((tmp_path / "report.html").read_text("utf8"))
    (line,) = (line for line in re.findall("<tr>(.*?)</tr>", page) if ">class (12)<" in line)
    cells = re.findall("<td[^>]*>(.*?)</td>", line)
    assert (cells[0], cells[1], cells[4]) == ("class (12)", "noise", "of its kind")
    assert (cells[2].startswith(between), cells[3].startswith(within)) == (True, True)


def test_a_decoder_of_words_has_content_within_classes_and_none_between():
    found = by_class("words", seed=1)
    (answer,) = found.groups
    assert answer.within.p < 0.01
    assert answer.within.effect > 5
    assert not answer.between.above
    assert (found.verdict.level, found.exit_status) == (Level.SENTENCE, 0)
    assert found.verdict.headline == "uses EEG: of the sentence"


def test_a_decoder_of_nothing_is_seldom_given_a_level():
    """At most 4 of 20 sets at the 5 % level: a sound test exceeds that in 3 of 1000 runs."""
    found = []
    for seed in range(20):
        eeg, controls, classes = planted("nothing", seed)
        aligned = align({"eeg": eeg, **controls})
        labels, scores = labels_of(aligned, classes, "class"), text_scorer(aligned, WORDS)
        found += answer_groups(aligned, labels, "class", [aligned.conditions], scores)
    assert sum(answer.between.p <= 0.05 for answer in found) <= 4
    assert sum(answer.within.p <= 0.05 for answer in found) <= 4


def test_without_groups_the_level_is_not_known_and_with_nothing_found_not_asked():
    eeg, controls, _ = planted("words")
    found = audit(eeg, controls)
    assert found.verdict.level is Level.UNKNOWN
    assert any("--groups=COLUMN tells" in line for line in found.limits)
    nothing, controls, _ = planted("nothing")
    assert audit(nothing, controls).verdict.level is None


def test_the_weakest_answer_of_several_columns_counts():
    eeg, controls, classes = planted("class")
    halves = {text: f"half {i % 2}" for i, text in enumerate(classes)}
    found = audit(eeg, controls, groups={"class": classes, "half": halves})
    assert [answer.level for answer in found.groups] == [Level.KIND, Level.SENTENCE]
    assert found.verdict.level is Level.KIND
    told = result_text(found, verbose=True)
    assert "Groups by class (12 groups) against noise: " in told
    assert "Groups by half (2 groups) against noise: between groups too few to tell; within groups " in told


def test_a_control_that_tells_the_class_as_well_leaves_nothing():
    eeg, _, classes = planted("class")
    alike = changed(eeg, prediction=lambda r: " ".join(r.prediction.split()[::-1]))
    (answer,) = audit(eeg, {"alike": alike}, groups={"class": classes}).groups
    for side in (answer.between, answer.within):
        assert (side.effect, side.sd) == pytest.approx((0, 0), abs=1e-9)
        assert side.scores[0] == pytest.approx(side.scores[1])


def test_content_between_groups_holds_no_prediction_against_its_own_sentence():
    eeg, controls, classes = planted("class")
    aligned = align({"eeg": eeg, **controls})
    labels = labels_of(aligned, classes, "class")
    labels[0] = "alone"
    scores = text_scorer(aligned, WORDS)
    (answer,) = answer_groups(aligned, labels, "class", [(aligned.eeg,)], scores)
    table = WORDS.fit(aligned.references)([r.prediction for r in aligned.eeg.rows], aligned.references)
    own, others = [], []
    for a in sorted(set(classes.values())):
        for b in sorted(set(classes.values())):
            mine, theirs = np.flatnonzero(labels == a), np.flatnonzero(labels == b)
            cells = [table[s, t] for s in mine for t in theirs if s != t]
            (own if a == b else others).append(np.mean(cells))
    assert answer.between.scores[0] == pytest.approx(np.mean(own))
    assert answer.between.nulls[0] == pytest.approx(np.mean(others))
    assert answer.groups == CLASSES + 1


def test_within_groups_no_stratum_mixes_tasks():
    """Each class has two tasks with words of their own, and the decoder knows the task alone."""
    eeg, controls, classes = planted("nothing")
    place = {text: number for number, text in enumerate(classes)}

    def known(r):
        return "easy" if place[r.reference] % 2 else "hard"

    eeg, noise = (
        changed(rows, task=known, reference=lambda r: f"{r.reference} {known(r)} {known(r)}ly")
        for rows in (eeg, controls["noise"])
    )
    eeg = changed(eeg, prediction=lambda r: f"{r.task} {r.task}ly {r.prediction}")
    groups = {r.reference: classes[r.reference.rsplit(" ", 2)[0]] for r in eeg}
    (answer,) = audit(eeg, {"noise": noise}, groups={"class": groups}).groups
    assert not answer.within.above


def test_labels_that_are_missing_or_all_the_same_are_refused():
    eeg, controls, classes = planted("class")
    few = dict(list(classes.items())[1:])
    for groups, message in (
        (few, "1 reference has no label"),
        (dict.fromkeys(classes, " "), "96 references have no label"),
        (dict.fromkeys(classes, "one"), "the same label"),
    ):
        with pytest.raises(UserError, match=message):
            audit(eeg, controls, groups={"class": groups})
    again = {f"<s> {text.upper()} </s>": label for text, label in classes.items()}
    assert audit(eeg, controls, groups={"class": again}).groups[0].level is Level.KIND, "a label goes by plain words"


def written_files(tmp_path, kind, header="target,prediction,Object class"):
    """EEG's and the control's file of a planted set, a table of the classes, and the command."""
    eeg, controls, classes = planted(kind, seed=1)
    for name, rows in {"eeg": eeg, **controls}.items():
        cells = [[r.reference, r.prediction, classes[r.reference]][: header.count(",") + 1] for r in rows]
        (tmp_path / f"{name}.csv").write_text("\n".join([header, *map(",".join, cells)]))
    (tmp_path / "meta.csv").write_text("\n".join(["reference,class", *map(",".join, classes.items())]))
    files = ["--eeg", tmp_path / "eeg.csv", "--control", tmp_path / "noise.csv", "--mode", "free_running"]
    return ["audit", *map(str, files)]


@pytest.mark.parametrize(
    ("header", "more", "status"),
    [
        ("target,prediction,Object class", ["--groups=Object class"], 11),
        ("target,prediction,Expected object", [], 11),  # a likely column is used, and named
        ("target,prediction,number", [], 0),
        ("target,prediction", ["--groups=class", "--meta=META"], 11),
        ("target,prediction,Expected object", ["--groups=class", "--meta=META"], 11),  # in place of the likely column
    ],
)
def test_groups_come_from_the_files(tmp_path, printed_by, header, more, status):
    command = written_files(tmp_path, "class", header)
    out = printed_by([*command, *(m.replace("META", str(tmp_path / "meta.csv")) for m in more)], status)
    assert ("of its kind\n" in out) == (status == 11)
    named = "grouped by expected object, chosen by its name; --groups=COLUMN takes another column"
    assert (named in out) == ("Expected" in header and not more)


def test_columns_that_are_no_groups_are_refused(tmp_path, refused):
    command = written_files(tmp_path, "class", "target,prediction")
    meta = ["--meta", str(tmp_path / "meta.csv")]
    for given in ([*meta, "--groups", "klass"], ["--groups", "class"], ["--groups", "class,"]):
        error = refused([*command, *given])
        assert "there is no such column" in error or "expected reference and at least" in error
    texts = [*planted("class")[2]] * 2
    lines = [f"{text},a b c,{'early' if n < CLASSES * EACH else 'late'},c" for n, text in enumerate(texts)]
    (tmp_path / "eeg.csv").write_text("\n".join(["target,prediction,half,one", *lines]))
    for column, message in (("half", "96 of 96 references have several labels"), ("one", "the same label")):
        assert message in refused(["audit", f"--eeg={tmp_path / 'eeg.csv'}", f"--groups={column}"])


SETS = {
    "clock": Clocked(sentences=240, subjects=3),
    "words": Clocked(sentences=240, subjects=3, block=1, words=0.5),
    "both": Clocked(sentences=240, subjects=3, words=0.5),
}
OF_TIME = ("clock", "nearest_in_time", "neighbor")


@pytest.fixture(scope="module")
def sets():
    return {name: made(spec, 1)[0] for name, spec in SETS.items()}


def judged(rows, controls, **options):
    return audit(rows["eeg"], {name: rows[name] for name in controls}, **options)


def test_a_decoder_of_the_clock_is_caught_by_controls_of_time(sets):
    usual = judged(sets["clock"], ["shuffled"])
    assert (usual.verdict.value, usual.verdict.time, usual.exit_status) == ("uses EEG", Time.UNKNOWN, 0)
    assert any(line.startswith("Time is not excluded: there is no control of time") for line in usual.limits)
    caught = judged(sets["clock"], ["shuffled", *OF_TIME])
    assert caught.verdict.value == "uses EEG: not beyond its time"
    assert caught.to_json()["verdict"] == caught.verdict.value
    assert "VERDICT: uses EEG: not beyond its time" in result_text(caught)
    assert (caught.verdict.color, caught.exit_status) == ("open", 10)
    assert all(c.question for c in caught.comparisons if c.control in OF_TIME)


@pytest.mark.parametrize("kind", ["words", "both"])
def test_words_go_beyond_their_time(sets, kind):
    found = judged(sets[kind], ["shuffled", *OF_TIME])
    assert (found.verdict.time, found.verdict.color, found.exit_status) == (Time.BEYOND, "good", 0)
    assert found.verdict.headline.startswith("uses EEG: beyond its time")


def test_what_holds_no_content_has_no_answer_about_its_time(sets):
    found = judged({**sets["words"], "eeg": sets["words"]["shuffled"]}, ["clock"])
    assert (found.verdict.time, found.verdict.headline) == (None, found.verdict.base)


def time_of(*controls, timed=True):
    """Time's answer by controls: what was fed, the training condition, the verdict, and whether EEG is above it."""
    eeg, noise = simulated_rows(sentences=30, subjects=1, information=0.3)
    conditions, verdicts = {"eeg": eeg}, {}
    for fed, trained, verdict, above in controls:
        conditions[fed] = changed(noise if above else eeg, eval_condition=fed, train_condition=trained)
        verdicts[fed] = verdict
    aligned = align(conditions)
    found = audit(conditions.pop("eeg"), conditions)
    comparisons = [Comparison(c.contrast, verdicts[c.control]) for c in found.comparisons]
    return answer_time(aligned, comparisons, timed=timed)


BARRED, USES = Verdict.NOT_JUDGEABLE, Verdict.USES_EEG


@pytest.mark.parametrize(
    ("controls", "status"),
    [
        ([("nearest_in_time", "eeg", USES, True)], Time.BEYOND),
        ([("nearest_in_time", "eeg", USES, False)], Time.NOT_BEYOND),
        ([("nearest_in_time", "eeg", USES, True), ("neighbor", "eeg", USES, False)], Time.NOT_BEYOND),
        # A control that cannot be judged neither beats EEG nor is beaten.
        ([("nearest_in_time", "eeg", BARRED, True), ("neighbor", "eeg", USES, True)], Time.UNKNOWN),
        ([("nearest_in_time", "eeg", USES, True), ("neighbor", "eeg", BARRED, False)], Time.BEYOND),
        ([("neighbor", "eeg", USES, True)], Time.UNKNOWN),
        # A model trained on EEG cannot read the clock. A file may not say on what its models were trained.
        ([("clock", "eeg", USES, True)], Time.UNKNOWN),
        ([("clock", "clock", USES, True)], Time.BEYOND),
        ([("clock", "unknown", USES, True)], Time.BEYOND),
    ],
)
def test_all_controls_of_time_must_be_beaten_and_one_must_know_all(controls, status):
    found, told = time_of(*controls)
    assert found is status
    assert ("these controls keep less than a clock could know" in told) == (status is Time.UNKNOWN)
    for fed, _, verdict, _ in controls:
        assert (f"against {fed}" in told) == (verdict is not BARRED), "every figure, and with the name of its control"


def test_time_that_no_control_excludes_says_whether_the_rows_know_it():
    for timed, rest in ((True, "."), (False, ", and the rows do not say when they were recorded.")):
        found = time_of(("noise", "eeg", USES, True), timed=timed)
        told = "Time is not excluded: there is no control of time (clock, nearest_in_time, same_place, neighbor)"
        assert found == (Time.UNKNOWN, f"{told}{rest}")
        _, told = time_of(("neighbor", "eeg", BARRED, True), timed=timed)
        assert told == f"Time is not excluded: no control of time can be judged{rest}"


@pytest.mark.parametrize(
    ("same", "controls", "status"),
    [
        (False, ("nearest_in_time",), Time.BEYOND),
        (True, ("nearest_in_time",), Time.UNKNOWN),
        (True, ("nearest_in_time", "same_place"), Time.BEYOND),
        (True, ("same_place",), Time.BEYOND),
    ],
)
def test_where_recordings_have_the_same_order_the_own_recording_does_not_suffice(same, controls, status):
    eeg, noise = simulated_rows(sentences=30, subjects=2, information=0.3)
    rng = np.random.default_rng(0)
    place = {s: rng.permutation(30) for s in sorted({r.subject for r in eeg})}
    number = {reference: k for k, reference in enumerate(dict.fromkeys(r.reference for r in eeg))}

    def timed(rows, **changes):
        orders = [number[r.reference] if same else int(place[r.subject][number[r.reference]]) for r in rows]
        return [
            dataclasses.replace(r, recording=r.subject, order=k, **changes) for r, k in zip(rows, orders, strict=True)
        ]

    rows = {name: timed(noise, eval_condition=name) for name in ("shuffled", *controls)}
    found = audit(timed(eeg), rows)
    assert found.verdict.time is status
    if status is Time.UNKNOWN:
        assert "add same_place" in found.time


def test_what_a_control_was_fed_says_its_question_whatever_it_is_called():
    fed = {"eeg": "eeg", "some noise": "noise", "backwards": "time_reversed"}
    aligned = align({name: [row(i, eval_condition=c) for i in range(8)] for name, c in fed.items()})
    assert questions(aligned, None) == {"backwards": QUESTIONS["time_reversed"]}
    assert questions(aligned, ["time_reversed"]).keys() == {"some noise"}
    assert questions(aligned, ["some noise"]).keys() == {"backwards"}
    fed = {"eeg": "eeg", "noise": "noise", "clock": "unknown", "arm": "neighbor"}
    aligned = align({name: [row(i, eval_condition=c) for i in range(8)] for name, c in fed.items()})
    assert questions(aligned, None) == dict.fromkeys(("clock", "arm"), OF_TIME_ASKED), (
        "by its name, or by what it was fed"
    )


@pytest.fixture(scope="module")
def conditions():
    """A decoder that reads words whatever their order, fed its recording, others' and its recording reversed."""
    eeg = decoded(*written(4), 0.5)
    others = [r.prediction for r in eeg[40:] + eeg[:40]]
    shuffled = [
        dataclasses.replace(r, eval_condition="shuffled", prediction=text) for r, text in zip(eeg, others, strict=True)
    ]
    return eeg, {"shuffled": shuffled, "time_reversed": changed(eeg, eval_condition="time_reversed")}


@pytest.mark.parametrize(
    ("deciding", "verdict"),
    [(None, Verdict.USES_EEG), (["shuffled"], Verdict.USES_EEG), (["time_reversed"], Verdict.EQUIVALENT)],
)
def test_a_control_that_keeps_the_words_features_asks_a_question_of_its_own(conditions, deciding, verdict):
    eeg, controls = conditions
    found = audit(eeg, controls, deciding=deciding)
    assert found.verdict.base is verdict
    asked = {c.control for c in found.comparisons if c.question}
    assert asked == {"shuffled" if deciding == ["time_reversed"] else "time_reversed"}
    question = (
        "does EEG differ from this control?" if asked == {"shuffled"} else "does the order of the recording matter?"
    )
    assert f"{question} " in result_text(found, verbose=True)


def test_alone_it_decides(conditions):
    eeg, controls = conditions
    assert audit(eeg, {"time_reversed": controls["time_reversed"]}).verdict.base is Verdict.EQUIVALENT


def test_controls_that_decide_by_default_keep_no_features_of_the_words():
    taken_away = {"zero", "shuffled", "subject_mean", "length_only"}
    taken_away |= {"noise", "noise_redrawn", "noise_uniform", "noise_spectrum"}
    assert set(load_config("default").grid.controls) == taken_away | {"prompt_only"}


def test_controls_that_decide_are_a_choice_only_if_they_are_not_the_default():
    eeg, noise = simulated_rows()
    controls = {"noise": noise, "time_reversed": changed(noise, eval_condition="time_reversed")}
    assert audit(eeg, controls, deciding=["noise", "zero"]).choices == audit(eeg, controls).choices == []
    assert audit(eeg, controls, deciding=["time_reversed"]).choices == ["deciding: time_reversed"]
