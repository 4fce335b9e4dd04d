"""Warnings at their bounds: what published prediction sets showed to be missed, or said without ground."""

import dataclasses
import math
import random
import types

import numpy as np
import pytest
from rows import changed, row, simulated_rows

from eeg2text_jax.auditing.align import align
from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.collapse import _overlap, measure_collapse, words_apart
from eeg2text_jax.auditing.contrast import Contrast, Evidence, Secondary
from eeg2text_jax.auditing.endpoints import primary_endpoint
from eeg2text_jax.auditing.fitness import file_flags
from eeg2text_jax.auditing.red_flags import _confounded, alignment_flags, pair_flags, row_flags, seed_flags
from eeg2text_jax.auditing.side_channel import SideChannel, _gap_flag
from eeg2text_jax.auditing.text_table import gap_flags
from eeg2text_jax.auditing.verdict import Verdict


def flags_of(rows):
    return {flag.code: flag for flag in file_flags("eeg", rows)}


def saying(rows, text):
    """The rows, each with the prediction that `text` makes of its number and reference."""
    return [dataclasses.replace(r, prediction=text(i, r.reference)) for i, r in enumerate(rows)]


def test_a_list_of_word_pieces_without_spaces_is_a_list():
    """Decoders that emit pieces by frequency write `the. in to andHe of`: no two lists have the same words."""
    pieces = ("the", "and", "of", "He", "in", "was", "his", "She", "to", "It", "is", "as", "on", "In", "From", "by")
    rng = random.Random(0)

    def listed(i, reference):
        order = rng.sample(pieces, len(pieces))
        return "".join(piece if piece[0].isupper() else f" {piece}" for piece in order)

    eeg, _ = simulated_rows(sentences=30)
    found = flags_of(saying(eeg, listed))
    assert "one list of frequent words" in found["frequency_list"].message
    assert "frequency_list" not in flags_of(eeg)


def test_texts_that_share_most_of_their_words_are_no_list_where_the_references_do():
    eeg, _ = simulated_rows(sentences=30)
    alike = changed(eeg, reference=lambda r: f"he was born in the town of {r.reference.split()[0]}")
    assert "frequency_list" not in flags_of(saying(alike, lambda _, reference: reference.replace("born", "seen")))


def test_frequent_words_are_known_with_marks_at_their_ends():
    eeg, _ = simulated_rows(sentences=30)
    word = max(set(words := [w for r in eeg for w in r.reference.split()]), key=words.count)
    assert "100% of the words" in flags_of(saying(eeg, lambda i, _: f"{word}{'.,'[: i % 3]}"))["frequency_only"].message


@pytest.mark.parametrize(
    ("text", "reference", "stutters"),
    [
        ("call 5 5 5 0 1", "call 5 5 5 0 1", False),
        ("the years 10, 10, 10, and on", "a year", False),
        ("no no no said she", "no no no said he", False),
        ("no no no said she", "said he", True),
        ("he , , , , , ,", "said he", True),
    ],
)
def test_what_was_read_three_times_is_no_padding(text, reference, stutters):
    eeg, _ = simulated_rows(sentences=30)
    rows = changed(eeg, reference=lambda r: f"{r.reference} {reference}", prediction=text)
    assert ("literal_padding" in flags_of(rows)) == stutters


@pytest.mark.parametrize(
    ("rows", "empty", "residue", "stutter", "codes"),
    [
        (40, 0, 0, 2, set()),
        (40, 1, 1, 0, {"empty_predictions", "token_residue"}),
        (40, 9, 0, 3, {"empty_predictions", "literal_padding"}),
        (40, 10, 2, 3, {"half_empty", "token_residue", "literal_padding"}),
        (400, 0, 1, 7, {"token_residue"}),  # a word three times by chance: two rows of a hundred may have it
        (400, 99, 0, 8, {"empty_predictions", "literal_padding"}),
    ],
)
def test_faults_of_the_text_are_said_from_their_number_on_whatever_else_is_found(rows, empty, residue, stutter, codes):
    faulty = ["" for _ in range(empty)] + ["he said </s>"] * residue + ["no no no said he"] * stutter
    texts = [*faulty, *(f"some words and {i}" for i in range(rows - len(faulty)))]
    found = flags_of([row(i, prediction=text) for i, text in enumerate(texts)])
    kinds = {"empty_predictions": empty, "half_empty": empty, "token_residue": residue, "literal_padding": stutter}
    assert found.keys() & kinds.keys() == codes
    assert all(f"{kinds[code]} of {rows} predictions" in found[code].message for code in codes)


@pytest.mark.parametrize("mode", ["free_running", "unknown", "teacher_forced"])
def test_a_score_beyond_all_published_ones_is_said_unless_the_target_was_fed(mode):
    rows = [row(i, mode=mode) for i in range(12)]
    at, above = ({flag.code for flag in file_flags("eeg", rows, bleu1)} for bleu1 in (50.0, 50.1))
    assert "too_good" not in at
    assert ("too_good" in above) == (mode != "teacher_forced")
    assert ("mode_unknown" in above) == (mode == "unknown")


def test_one_row_does_not_carry_a_score_of_nothing():
    eeg, _ = simulated_rows(sentences=30)
    nothing = saying(eeg, lambda i, reference: "zz qq " * 150)
    one = [dataclasses.replace(eeg[0], prediction=eeg[0].reference.split()[0]), *nothing[1:]]
    assert not carrying(one)  # one word in 27,000 is a score of 0.004
    many = [dataclasses.replace(eeg[0], prediction=f"{eeg[0].reference} " * 3), *nothing[1:]]
    assert "one row carries the score, which is 0.00 without row 1 " in carrying(many)[0].message


def carrying(rows):
    endpoint = primary_endpoint()
    own = endpoint.metric.statistics([r.prediction for r in rows], [r.reference for r in rows])
    return row_flags(align({"eeg": rows}).eeg, own, endpoint.score)


def contrast(observed, null, p, p_less, gap_interval=None):
    values = dict.fromkeys((field.name for field in dataclasses.fields(Contrast)), 0.0)
    values |= {"scores": (10 + observed, 10.0), "nulls": (null, 0.0), "observed": observed, "p_seeds": None}
    values |= {"p": p, "p_less": p_less, "effect": observed - null, "interval_90": (-1.0, 1.0)}
    return Contrast(**values | {"gap_interval": gap_interval or (observed - 0.1, observed + 0.1)})


def warned(primary, derived=(), wer=(100.0, 100.0), wer_gap=(0.0, 0.0)):
    secondary = Secondary("WER", "", wer, wer_gap, 0.0, (0.0, 0.0), 1.0, 1.0)
    evidence = Evidence("noise", primary, dict(enumerate(derived)), [secondary], [])
    return {flag.code: flag.message for flag in gap_flags("eeg", evidence)}


@pytest.mark.parametrize(
    ("primary", "derived", "said"),
    [
        (contrast(0.94, 1.17, 0.9, 0.1), [], "+1.17 of it"),
        # Content within the file's strata that is gone within those that stand in for tasks: NRv2, T5.
        (contrast(1.21, 0.64, 0.009, 0.99), [contrast(1.21, 1.09, 0.23, 0.77)], "+1.09 of it"),
        (contrast(1.21, 0.64, 0.009, 0.99), [contrast(1.21, 0.70, 0.02, 0.98)], ""),
        # The control has the more content, however little: the gap is not style alone.
        (contrast(-0.28, -0.16, 1.0, 0.001), [contrast(-0.28, -0.15, 1.0, 0.001)], ""),
        (contrast(-0.28, -0.16, 1.0, 0.001), [contrast(-0.28, -0.25, 0.8, 0.2)], "-0.25 of it"),
        # The control scores more for its style, and content is found: the figures of style would speak against it.
        (dataclasses.replace(contrast(-3.0, -13.0, 0.001, 1.0), interval_90=(9.0, 11.0)), [], ""),
        # Content within the file's strata alone is none: what is left of the gap within the others is style.
        (
            dataclasses.replace(contrast(1.21, 0.64, 0.009, 0.99), interval_90=(0.1, 1.0)),
            [contrast(1.21, 1.09, 0.23, 0.77)],
            "+1.09 of it",
        ),
        (contrast(0.37, 0.37, 0.5, 0.5, (-0.05, 0.82)), [], ""),  # no gap beyond the noise
    ],
)
def test_a_gap_is_style_where_no_content_is_found_in_it(primary, derived, said):
    found = warned(primary, derived)
    assert ("gap_is_style" in found) == bool(said)
    assert said in found.get("gap_is_style", "")


def test_metrics_disagree_only_where_both_are_beyond_the_noise():
    ahead = contrast(0.94, 0.0, 0.01, 0.99, (0.41, 1.48))
    assert "metrics_disagree" in warned(ahead, wer=(103.0, 100.0), wer_gap=(-4.0, -2.0))
    assert "metrics_disagree" not in warned(ahead, wer=(100.7, 100.0), wer_gap=(-1.74, 0.28))
    assert "metrics_disagree" not in warned(ahead, wer=(97.0, 100.0), wer_gap=(2.0, 4.0))
    assert "metrics_disagree" not in warned(ahead, wer=(100.2, 100.0), wer_gap=(-0.3, -0.1)), "too little to matter"
    unsure = contrast(0.94, 0.0, 0.01, 0.99, (-0.2, 2.0))
    assert "metrics_disagree" not in warned(unsure, wer=(103.0, 100.0), wer_gap=(-4.0, -2.0))


def test_the_interval_of_a_gap_is_that_of_the_difference_of_scores():
    """A style that is worth points in every sentence: a gap without doubt, and no content."""
    eeg, noise = simulated_rows(style_shift=0.4, sentences=60)
    found = audit(eeg, {"noise": noise}, resamples=400, proof="the test planted all of it, no target").comparisons[0]
    low, high = found.primary.gap_interval
    assert 0 < low < found.primary.observed < high
    assert found.primary.interval[0] < 0
    errors = next(s for s in found.secondary if s.label == "WER")
    assert errors.gap_interval[0] < errors.scores[1] - errors.scores[0] < errors.gap_interval[1]


def test_channels_that_are_open_on_both_sides_are_not_said_to_be_open_on_one():
    both = _gap_flag(SideChannel("eeg", 1.61, 0.0001), SideChannel("noise", 1.46, 0.0001), 0.02)
    assert (both.code, "in one condition" in both.message) == ("side_channels_differ", False)
    one = _gap_flag(SideChannel("eeg", -0.04, 0.96), SideChannel("noise", 0.26, 0.001), 0.002)
    assert (one.code, "in one condition only" in one.message) == ("side_channel_in_one_condition", True)


def erring(rows, seed_of):
    """A third of the words replaced, by draws that `seed_of` a row begins."""

    def text(row):
        rng = random.Random(seed_of(row))
        return " ".join(f"x{rng.randrange(10**6)}" if rng.random() < 0.33 else w for w in row.reference.split())

    return changed(rows, prediction=text)


def test_readers_that_make_the_same_errors_were_given_the_target():
    eeg, _ = simulated_rows(sentences=40, subjects=4)
    own = audit(erring(eeg, lambda r: r.sample_id), {}, resamples=200)
    assert own.verdict is Verdict.CONTENT
    shared = erring(eeg, lambda r: r.sentence_id if r.subject[-1] != "0" or len(r.reference) % 3 else r.sample_id)
    fed = audit(shared, {}, resamples=200)
    assert fed.verdict is Verdict.NOT_JUDGEABLE
    assert "have one and the same prediction" in next(f.message for f in fed.flags if f.code == "input_independent")


def test_one_text_for_all_readers_is_said_from_half_of_the_sentences_on():
    eeg, _ = simulated_rows(sentences=30)
    first = {r.sentence_id: r.prediction for r in reversed(eeg)}
    some = sorted(first)

    def alike(n):
        return changed(eeg, prediction=lambda r: first[r.sentence_id] if r.sentence_id in some[:n] else r.prediction)

    assert "same_for_all_readers" not in flags_of(alike(14))
    message = flags_of(alike(15))["same_for_all_readers"].message
    assert message == "eeg: of the 30 sentences with several rows, 15 have one and the same prediction in all of them"


def test_sentences_with_one_row_say_nothing_about_readers():
    """Ten sentences have one row; of the four with two, the first ones have the same text in both."""

    def found(alike):
        readers = [(i, subject) for i in range(14) for subject in ("AB" if i < 4 else "A")]
        texts = [f"text {i}" if i < alike else f"text {i} of {subject}" for i, subject in readers]
        return flags_of(
            [row(i, sample_id=f"{i}{u}", subject=u, prediction=t) for (i, u), t in zip(readers, texts, strict=True)]
        )

    assert "same_for_all_readers" not in found(1)
    message = found(2)["same_for_all_readers"].message
    assert message == "eeg: of the 4 sentences with several rows, 2 have one and the same prediction in all of them"


@pytest.mark.parametrize("texts", [["the cat sat down"], ["the cat sat down", "a dog ran off into the wood"]])
def test_one_or_two_rows_are_neither_collapsed_nor_do_their_lengths_follow(texts):
    eeg, _ = simulated_rows(sentences=2)
    rows = [
        dataclasses.replace(r, reference=text, prediction=f"it is {text}")
        for r, text in zip(eeg[: len(texts)], texts, strict=True)
    ]
    codes = {*flags_of(rows)}
    assert not codes & {"collapsed", "length_follows_reference"}
    assert len(texts) > 1 or "same_beginning" not in codes


def test_words_run_together_are_parted_and_capitals_are_not():
    assert words_apart("in andHe of NASA") == ["in", "and", "he", "of", "nasa"]


def test_texts_of_one_sentence_are_not_held_against_each_other():
    rng = np.random.default_rng(0)
    assert _overlap(["a b", "a b", "c d"], np.array([0, 0, 1]), rng) == 0
    assert np.isnan(_overlap(["a b", "a b"], np.array([0, 0]), rng))


def test_frequent_words_are_no_finding_where_the_references_have_no_others():
    rng = random.Random(0)
    words = [f"w{i}" for i in range(40)]
    eeg, _ = simulated_rows(sentences=30)
    few = {r.reference: " ".join(rng.sample(words, 8)) for r in eeg}
    alike = changed(eeg, reference=lambda r: few[r.reference])
    found = flags_of(changed(alike, prediction=lambda r: " ".join(rng.sample(words, 8))))
    assert "frequency_only" not in found


@pytest.mark.parametrize(("shared", "copied"), [(9, False), (10, True)])
def test_two_subjects_are_copies_from_ten_sentences_in_common_on(shared, copied):
    rows = [row(i, subject="A", prediction=f"say {i}") for i in range(20)]
    rows += [row(i, subject="B", sample_id=f"B{i}", prediction=f"say {i}") for i in range(20 - shared, 20)]
    rows += [row(i, subject="B", sample_id=f"B{i}", prediction=f"say {i}") for i in range(20, 40 - shared)]
    assert ("duplicate_subjects" in flags_of(rows)) == copied


def test_one_text_for_everything_is_no_copy_of_a_subject():
    rows = [row(i, subject=s, sample_id=f"{s}{i}", prediction="it is") for i in range(30) for s in "AB"]
    codes = flags_of(rows)
    assert "collapsed" in codes
    assert "duplicate_subjects" not in codes


def test_a_text_for_each_of_six_sentences_that_many_read_is_not_collapsed():
    rows = [row(i, sample_id=f"{s} {i}", prediction=f"text {i}") for i in range(6) for s in range(20)]
    assert "collapsed" not in flags_of(rows)
    assert "collapsed" in flags_of(changed(rows, prediction=lambda r: f"text {int(r.sentence_id[1:]) // 2}"))


def test_subjects_with_most_sentences_in_common_do_not_tell_the_sentence():
    """8 of 12 sentences are in common, or 4 of 16."""
    for shared, tells in ((8, False), (4, True)):
        first, second = np.arange(10), np.arange(10 - shared, 20 - shared)
        sentence, subject = np.concatenate([first, second]), np.repeat([0, 1], 10)
        assert _confounded(sentence, subject) == tells


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (range(70), range(70, 100), ["; each stratum belongs to one group of subjects"]),
        (range(97), range(97, 100), [", and strata do not separate them"]),  # three sentences are no stratum
        (range(100), range(40, 100), []),
        (range(100), range(100), []),
    ],
)
def test_subjects_who_read_other_sentences_tell_the_sentence_however_many_they_read(first, second, said):
    rows = [row(i, subject=s, sample_id=f"{s}{i}") for s, read in (("A", first), ("B", second)) for i in read]
    flags = alignment_flags(align({"eeg": rows}), math.nan)
    start = "subjects read different sentences: the subject alone narrows down the sentence"
    assert [f.message for f in flags if f.code == "subject_tells_sentence"] == [start + end for end in said]


def test_a_recipe_is_judged_by_three_seeds():
    def codes(seeds, trained):
        conditions = [types.SimpleNamespace(rows=[row(0, train_condition=name)]) for name in ("eeg", trained)]
        return [flag.code for flag in seed_flags(types.SimpleNamespace(seeds=range(seeds), conditions=conditions))]

    assert codes(1, "noise") == ["recipe_without_seeds"]
    assert codes(2, "noise") == ["few_seeds", "recipe_without_seeds"]
    assert codes(3, "noise") == codes(1, "eeg") == []


@pytest.mark.parametrize(("words", "said"), [(6, True), (7, False), (14, False), (15, True)])
def test_predictions_of_another_length_are_another_style(words, said):
    """The control's have ten words."""
    sides = [[row(i, prediction=" ".join(f"{k}x{i}" for k in range(n))) for i in range(8)] for n in (words, 10)]
    aligned = align(dict(zip(("eeg", "noise"), sides, strict=True)))
    rng = np.random.default_rng(0)
    looks = {c.name: measure_collapse(c, aligned.references, rng) for c in aligned.conditions}
    codes = {flag.code for flag in pair_flags(aligned, aligned.conditions[1], looks)}
    assert ("style_shift" in codes) == said


def test_the_first_vocabulary_is_of_one_prediction_a_sentence():
    rows = [row(i, sample_id=f"{i} {k}", prediction=f"one{i} two{i}x{k}") for i in range(6) for k in range(3)]
    condition = align({"eeg": rows}).eeg
    found = measure_collapse(condition, [f"text {i}" for i in range(6)], np.random.default_rng(0))
    assert (found.first_vocabulary, found.vocabulary) == (12, 24)
