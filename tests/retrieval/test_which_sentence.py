"""The audit of rankings on planted scores: its figures by brute force, its verdicts, and what length alone is worth."""

import dataclasses
import json
import re
import types

import numpy as np
import pytest
from scipy import stats

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.auditing.notices import RANKED_HERE
from eeg2text_jax.instrument.auditing.report import write_report
from eeg2text_jax.instrument.auditing.result import result_text
from eeg2text_jax.instrument.auditing.strata import length_strata
from eeg2text_jax.instrument.auditing.table import rank_figures, rank_signs
from eeg2text_jax.instrument.auditing.verdict import Verdict
from eeg2text_jax.instrument.metrics.score import TOP, chance_interval, score_rankings
from eeg2text_jax.instrument.predictions.rankings import Candidates, Ranking, rounded, write_rankings
from eeg2text_jax.instrument.predictions.selection import select_arms

SENTENCES, READERS = 60, ("A", "B")
WORDS = 5 + np.arange(SENTENCES) // 4  # four of each length, twelve in a stratum


def candidates():
    tasks = ["T"] * SENTENCES
    texts = [" ".join([f"word{i}"] * int(n)) for i, n in enumerate(WORDS)]
    return Candidates("test", texts, [f"T:{i}" for i in range(SENTENCES)], tasks, WORDS, length_strata(tasks, WORDS))


def rows(rng, *, own=0.0, length=0.0, condition="eeg", train="eeg", readers=READERS, seed=0):
    """Scores of noise, with something for the right sentence and something for sentences of its length."""
    found, made = candidates(), []
    for i in range(SENTENCES):
        for reader in readers:
            scores = rng.normal(size=SENTENCES) + length * (WORDS[i] == WORDS)
            scores[i] += own
            about = (f"{reader}/T:{i}", reader, "T", f"T:{i}", int(WORDS[i]), train, condition, seed, "contrastive")
            texts = found.references[i], found.references[int(np.argmax(scores))]
            made.append(Ranking(*about, *texts, scores=rounded(scores), candidates=found))
    return made


def test_the_effect_is_what_its_definition_says():
    """How much oftener the right sentence is among five than others of its stratum are, EEG less control."""
    rng = np.random.default_rng(0)
    eeg, control = rows(rng, own=1.5), rows(rng, own=0.5, condition="noise")
    found = audit(eeg, {"noise": control})
    strata = length_strata(["T"] * SENTENCES, WORDS)

    def content(made):
        own, other = [], []
        for row in made:
            top = set(np.argsort(-row.scores)[:5].tolist())
            stratum = np.flatnonzero(strata == strata[row.right]).tolist()
            own.append(row.right in top)
            other += [c in top for c in stratum if c != row.right]
        return 100 * np.mean(own), 100 * np.mean(other)

    (own, null), (control_own, control_null) = content(eeg), content(control)
    (comparison,) = found.comparisons
    assert comparison.contrast.scores == pytest.approx((own, control_own))
    assert comparison.contrast.nulls == pytest.approx((null, control_null))
    assert comparison.contrast.effect == pytest.approx(own - null - control_own + control_null)


def test_shuffled_is_not_held_against_its_donors():
    """A perfect reader of whatever it is fed: the donor's sentence in the null gave differences beyond 100 points."""
    rng = np.random.default_rng(9)
    eeg, shuffled = rows(rng, own=50), rows(rng, condition="shuffled")
    for place, row in enumerate(shuffled):
        donor = place // 2 // 4 * 4 + (place // 2 + 1 + place % 2) % 4  # of the same length; each reader's another
        row.scores[donor] += 50
        shuffled[place] = dataclasses.replace(row, donor=f"T:{donor}")
    found = audit(eeg, {"shuffled": shuffled}, endpoint="top-1")
    assert found.comparisons[0].contrast.effect == pytest.approx(100)
    assert found.comparisons[0].contrast.nulls == (0, 0)
    assert "donors" not in {notice.code for notice in found.notices}
    unknown = [dataclasses.replace(row, donor=None) for row in shuffled]
    inflated = audit(eeg, {"shuffled": unknown}, endpoint="top-1")
    assert inflated.comparisons[0].contrast.effect > 104
    for some in (unknown, [*shuffled[:-1], unknown[-1]]):  # one row is enough
        assert "donors" in {notice.code for notice in audit(eeg, {"shuffled": some}, endpoint="top-1").notices}


def test_planted_uses_eeg_and_says_so():
    rng = np.random.default_rng(1)
    found = audit(rows(rng, own=4), {"noise": rows(rng, condition="noise")})
    assert found.verdict.base is Verdict.USES_EEG
    assert "fit their own sentences better with EEG than with noise" in found.sentence
    assert found.candidates == (60, 60)
    assert found.chance == pytest.approx(100 * 5 / 60)
    expected = [100 * bound for bound in chance_interval(5 / 60, SENTENCES)]  # two rows of a sentence are no two
    assert found.chance_interval == pytest.approx(expected)
    assert expected[0] < found.chance < expected[1]
    (cell,) = score_rankings(rows(rng, own=4))
    assert cell["chance_interval_top-5"] == pytest.approx(expected)


def test_nothing_is_claimed_of_nothing_more_often_than_it_may_be():
    claims = 0
    for seed in range(60):
        rng = np.random.default_rng([2, seed])
        found = audit(rows(rng), {"noise": rows(rng, condition="noise")})
        claims += found.verdict.base in (Verdict.USES_EEG, Verdict.BELOW_MARGIN)
    assert claims <= 7, "one in twenty is allowed; more than seven of sixty come in one of fifty such series"


def test_what_length_gives_is_no_content_and_is_named():
    """Above chance by far, as is the arm that knows the length alone; and not a word of it in the verdict."""
    rng = np.random.default_rng(3)
    arm = "length_only"
    made = [*rows(rng, length=3), *rows(rng, length=3, condition=arm, train=arm)]
    made += rows(rng, length=3, condition="noise")
    conditions = select_arms(made)
    assert list(conditions) == ["eeg", "noise", "the arm trained on length_only"]
    found = audit(conditions.pop("eeg"), conditions)
    assert found.conditions[0].figures.top5 > 60 > found.chance_interval[1]
    assert found.verdict.base not in (Verdict.USES_EEG, Verdict.BELOW_MARGIN)
    assert found.by_length.top5 == 100, "four sentences of a length, five places"
    assert "number of words alone" in result_text(found), "the baseline stands beside the conditions"


def test_chance_and_the_baseline_of_lists_of_several_sizes_are_means_over_rows():
    """Three rows of 60 candidates and one of 12, of seven sentences; sentences of the right length share the places."""
    words = np.array([3, 5, 5, 9, 6, 5, 4, 5, 7, 5, 5, 8])
    texts = [f"text {i}" for i in range(12)]
    short = Candidates("short", texts, texts, ["T"] * 12, words, np.zeros(12, int))
    made = rows(np.random.default_rng(0), readers=("A",))[:4]
    made[1] = dataclasses.replace(made[1], reference="text 4", scores=made[1].scores[:12], candidates=short, n_words=6)
    aligned = types.SimpleNamespace(eeg=types.SimpleNamespace(rows=made), references=[""] * 7)
    for column, k in enumerate(TOP):
        found, p = rank_figures(aligned, column), (3 * k / 60 + k / 12) / 4
        assert (found.candidates, found.chance) == ((12, 60), pytest.approx(100 * p))
        assert found.chance_interval == pytest.approx([100 * n / 7 for n in stats.binom.interval(0.95, 7, p)])
        assert dataclasses.astuple(found.by_length)[column] == pytest.approx(100 * (3 * min(k / 4, 1) + 1) / 4)
    rank = (60 - (1 + 4) / 2) / 59  # among four of the right length
    assert rank_figures(aligned, 2).by_length.percentile == pytest.approx(100 * (3 * rank + 1) / 4)
    level, (low, high) = rank_figures(aligned, 2).chance, rank_figures(aligned, 2).chance_interval
    assert (level, (low + high) / 2) == (50, 50), "ranks by chance are uniform"
    assert high - 50 == pytest.approx(1.96 * 100 * stats.uniform.std() / 7**0.5, rel=1e-3)


def test_length_that_eeg_alone_knows_is_no_content_either():
    """The control does not know the length: the raw gap is wide, within strata of equal lengths there is none."""
    claims = 0
    for seed in range(12):
        rng = np.random.default_rng([4, seed])
        found = audit(rows(rng, length=3), {"noise": rows(rng, condition="noise")})
        assert np.subtract(*found.comparisons[0].contrast.scores) > 40
        claims += found.verdict.base in (Verdict.USES_EEG, Verdict.BELOW_MARGIN)
    assert claims <= 2


def test_missing_eeg_is_said():
    with pytest.raises(UserError, match="no arm was trained and tested with eeg"):
        select_arms(rows(np.random.default_rng(6), condition="noise"))


def test_scores_that_are_all_equal_are_chance_and_show_nothing():
    rng = np.random.default_rng(7)
    eeg = rows(rng)
    for row in eeg:
        row.scores[:] = 0.0
    found = audit(eeg, {"noise": rows(rng, condition="noise")})
    assert found.conditions[0].figures.top5 == pytest.approx(found.chance)
    assert found.verdict.base is Verdict.UNDERPOWERED


def test_report_json_and_files_of_two_conditions(tmp_path, printed_by, refused):
    rng = np.random.default_rng(8)
    eeg, control = rows(rng, own=4), rows(rng, condition="noise")
    for name, made in (("eeg", eeg), ("noise", control)):
        write_rankings(tmp_path / f"{name}.jsonl", {}, made)
    arguments = [f"--eeg={tmp_path / 'eeg.jsonl'}", f"--control={tmp_path / 'noise.jsonl'}"]
    outputs = [f"--json={tmp_path / 'audit.json'}", f"--html={tmp_path / 'audit.html'}"]
    assert "VERDICT: uses EEG" in printed_by(["audit", *arguments, *outputs, "--endpoint=top-1"])
    assert json.loads((tmp_path / "audit.json").read_text())["metric"] == "top-1"
    found = audit(eeg, {"noise": control})
    write_report(found, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    for text in (page, result_text(found, verbose=True)):
        assert all(said in text for said in ("number of words alone", "top-5 by chance: 8.3 %"))
        assert "each of 60 independent sentences was ranked among 60)" in text, "of two readers each"
    for name, made, one in (("eeg", eeg, found.conditions[0]), ("noise", control, found.conditions[1])):
        places = np.array([np.sum(row.scores > row.scores[row.right]) for row in made])
        figures = 100 * np.mean(places < 1), 100 * np.mean(places < 5), 100 * np.mean(1 - places / (SENTENCES - 1))
        p = f"{one.content.p:.3f}" if one.content.p >= 0.001 else "< 0.001"
        shown = [name, "120", *(f"{value:.1f}" for value in figures), f"{one.content.nulls[0]:.1f}"]
        shown += [f"{one.content.effect:+.1f}", p]
        assert re.search(r"\s+".join(map(re.escape, shown)), result_text(found))
        assert "".join(f">{cell}</td>" for cell in shown[:1]) in page
    gaps = np.abs(WORDS[:, None] - WORDS)
    closer, equal = [(gaps < gaps.diagonal()[:, None]).sum(1), (gaps == gaps.diagonal()[:, None]).sum(1)]
    rank = 100 * np.mean((SENTENCES - (closer + (equal + 1) / 2)) / (SENTENCES - 1))
    assert re.search(rf"number of words alone\s+–\s+25\.0\s+100\.0\s+{rank:.1f}\s+–", result_text(found))
    (tmp_path / "text.txt").write_text("Target string: a\nPredicted string: b\n")
    assert "has no rankings, but" in refused(["audit", arguments[0], f"--control={tmp_path / 'text.txt'}"])
    said = refused(["audit", *arguments, "--deciding=noisy"])
    assert "--deciding=noisy: 'noisy' is not a control of these files; expected some of noise." in said


def test_windows_of_scans_are_thinned():
    rng = np.random.default_rng(0)
    eeg, control = rows(rng), rows(rng, condition="noise")
    found = audit(eeg, {"noise": control}, recording="fmri")
    starts, free = [], 0
    for i, length in enumerate(WORDS):
        if i >= free:
            starts, free = [*starts, i], i + int(length)
    assert found.n_sentences == len(starts)
    assert f"windows overlap: {2 * len(starts)} of 120 rows share no segment" in " ".join(found.notes)
    assert audit(eeg, {"noise": control}).n_sentences == SENTENCES


def rescored(made, scores):
    return [dataclasses.replace(row, scores=np.asarray(scores(row), float)) for row in made]


def barring(found):
    return [notice.code for notice in found.notices if notice.bars]


def test_rankings_say_whose_statement_they_rest_on_and_scores_that_hold_the_answer_contradict_it():
    rng = np.random.default_rng(9)
    eeg, noise = rows(rng, own=9), rows(rng, condition="noise")
    found = audit(eeg, {"noise": noise})
    assert (found.verdict.base, found.provenance.level.value) == (Verdict.USES_EEG, "stated")
    assert "stated: the file states that candidates were scored without the answer" in result_text(found)
    marked = rescored(eeg, lambda row: np.arange(SENTENCES) == row.right)
    same = {row.sentence_id: row.scores for row in eeg}
    averaged = rescored(eeg, lambda row: same[row.sentence_id])
    for bad, code in ((marked, "target_scores"), (averaged, "input_independent")):
        found = audit(bad, {"noise": noise}, proof="no answer was ever near the scores")
        assert found.verdict.base is Verdict.NOT_JUDGEABLE
        assert code in barring(found)
    told = {"proof": "recordings were averaged over all readers"}
    assert audit(averaged, {"noise": noise}, **told).verdict.base is Verdict.USES_EEG
    assert barring(audit(marked, {"noise": noise}, decoded=RANKED_HERE)) == []


def test_scores_of_three_candidates_may_tie_for_all_but_the_right_one():
    made = rows(np.random.default_rng(0))[:40]
    for few, found in ((3, []), (4, ["target_scores"])):
        texts, words = [f"text {i}" for i in range(few)], np.full(few, 2.0)
        given = Candidates("few", texts, texts, ["T"] * few, words, np.zeros(few, int))
        scores = np.arange(few) == 0
        marked = [dataclasses.replace(r, reference=texts[0], scores=scores * 1.0, candidates=given) for r in made]
        signs = rank_signs(types.SimpleNamespace(name="eeg", rows=marked), averaged=True)
        assert [sign.code for sign in signs] == found
