"""Decoders that work, of any quality and any number of readers, are judged; leaks among them are not."""

import dataclasses
import random
import re

import numpy as np
import pytest
from rows import changed, edited, row

from eeg2text_jax.auditing import forced_words
from eeg2text_jax.auditing.align import align
from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.forced_words import _islands, marks_alone, marks_of_target, words_follow_the_target
from eeg2text_jax.auditing.plain_rows import Rows
from eeg2text_jax.auditing.provenance import DECODED_HERE
from eeg2text_jax.auditing.structure import _in_two_parts, signs
from eeg2text_jax.errors import UserError
from eeg2text_testing.decoders import by_language, chosen, decoded, exchanged, of_words, unsaid, word_by_word, written

RESAMPLES = 300


def quick(rows, controls, **options):
    return audit(rows, controls, resamples=RESAMPLES, **options)


@pytest.mark.quick("1-0.2", "1-0.97", "10-0.6", "18-0.3")
@pytest.mark.parametrize(
    ("readers", "right"), [(1, 0.2), (1, 0.6), (1, 0.97), (10, 0.2), (10, 0.6), (10, 0.9), (18, 0.3), (18, 0.85)]
)
def test_a_decoder_that_works_uses_the_eeg_with_and_without_control(readers, right):
    rows = decoded(*written(readers), right)
    for maker in (rows, word_by_word(*written(readers), right)):
        paired = quick(maker, {"shuffled": exchanged(maker)})
        assert paired.verdict.value == "uses EEG", [f.message for f in paired.flags if f.level == "severe"]
        assert "as measured against shuffled" in paired.sentence
        assert paired.provenance.level.value == "stated"
    assert quick(rows, {}).verdict.value == "content above its null"
    assert quick(unsaid(rows), {}).verdict.value == "content of unproven origin"


def test_content_grows_with_quality():
    effects = [quick(decoded(*written(4), right), {}).deciding.primary.effect for right in (0.1, 0.3, 0.6, 0.9)]
    assert effects == sorted(effects)
    assert effects[0] > 1
    assert effects[-1] > 35


def test_one_good_reader_among_poor_ones_is_no_leak():
    rows, vocabulary = written(10)
    good = decoded([row for row in rows if row.subject == "reader 0"], vocabulary, 0.95)
    poor = [row for row in rows if row.subject != "reader 0"]
    assert quick(good + poor, {}).verdict.value == "content above its null"


def test_a_choice_among_the_sentences_of_the_file_is_right_or_wrong_as_a_whole():
    rows, _ = written(4)
    assert quick(chosen(rows, 0.4), {}).verdict.value == "content above its null"


def test_teacher_forcing_shows_without_marks():
    """Wrong words follow the true word before them; those of a decoder that ran free follow its own."""
    rows, after = of_words()
    for right in (0.1, 0.4):
        free, forced = (by_language(rows, after, right, forced=forced) for forced in (False, True))
        assert quick(free, {}).verdict.value in ("content above its null", "no content found above its null")
        found = quick(forced, {})
        assert found.verdict.value == "not judgeable"
        assert "each word was predicted from the target" in found.sentence


def test_a_choice_from_a_list_larger_than_the_file_is_judged_with_its_list():
    rows, _ = written(4)
    others = sorted({row.reference for row in written(1, seed=9, sentences=300)[0]})
    rng = random.Random(3)
    listed = [row.reference if rng.random() < 0.4 else rng.choice(others) for row in rows]
    listed = [dataclasses.replace(row, prediction=text) for row, text in zip(rows, listed, strict=True)]
    alone = quick(listed, {})
    assert alone.verdict.value == "not judgeable"
    assert "--choices" in alone.sentence
    whole = [*others, *(row.reference for row in rows)]
    found = quick(listed, {}, choices=whole)
    assert found.verdict.value == "content above its null"
    assert "chose among 360 sentences, of which 60" in "".join(flag.message for flag in found.flags)
    with pytest.raises(UserError, match="not among its 300 sentences"):
        quick(listed, {}, choices=others)


def test_a_decoder_that_stops_after_some_words_is_judged_and_cut_targets_are_not():
    rows, vocabulary = written(4)
    good = decoded(rows, vocabulary, 0.97)
    stopped = changed(good, prediction=lambda r: " ".join(r.prediction.split()[:8]))
    assert quick(stopped, {}).verdict.value == "content above its null"
    cut = changed(rows, prediction=lambda r: " ".join(r.reference.split()[:8]))
    assert quick(cut, {}).verdict.value == "not judgeable"


def test_a_closed_vocabulary_has_the_same_words_wrong_for_all_readers():
    """Half of the words are known, and another becomes one of them, always the same; else nothing is wrong."""
    rows, after = of_words(60)
    rng, words = random.Random(8), list(after)
    known = rng.sample(words, 100)
    becomes = {word: rng.choice(known) for word in words} | {word: word for word in known}
    said = changed(rows, prediction=lambda r: " ".join(becomes[w] for w in r.reference.split()))
    assert quick(said, {}).verdict.value == "content above its null"
    spoilt = {}  # as many words wrong, whichever they are
    for r in rows:
        text = " ".join(w if rng.random() < 0.5 else rng.choice(words) for w in r.reference.split())
        spoilt.setdefault(r.reference, text)
    said = changed(rows, prediction=lambda r: spoilt[r.reference])
    assert "input_independent" in {flag.code for flag in quick(said, {}).flags}


def less_its_last(row, rng):
    return " ".join(row.reference.split()[:-1])


def stretch_of(row, rng, begin, end):
    """A stretch of the target among other words."""
    words = row.reference.split()
    own = range(int(begin * len(words)), int(end * len(words)))
    return " ".join(w if i in own else f"x{rng.randrange(99)}" for i, w in enumerate(words))


def one_changed(row, rng, count=1):
    words = row.reference.split()
    for place in rng.sample(range(len(words)), count):
        words[place] = f"x{rng.randrange(9999)}"
    return " ".join(words)


LEAKS = {
    "all references": (1.0, lambda row, rng: row.reference),
    "one word changed": (1.0, one_changed),
    "last word dropped": (1.0, less_its_last),
    "last word dropped in few": (0.06, less_its_last),
    "one word changed in few": (0.06, one_changed),
    "whole in few": (0.06, lambda row, rng: row.reference),
    "first half": (1.0, lambda row, rng: " ".join(row.reference.split()[: max(5, len(row.reference.split()) // 2)])),
    "in capitals, in few": (0.1, lambda row, rng: row.reference.upper()),
    "second half": (1.0, lambda row, rng: stretch_of(row, rng, 0.5, 1.0)),
    "middle": (1.0, lambda row, rng: stretch_of(row, rng, 0.25, 0.75)),
    "in capitals, hyphens gone": (1.0, lambda row, rng: row.reference.upper().replace(" w1", "w1").replace(",", "")),
    "in capitals": (1.0, lambda row, rng: row.reference.upper().replace(",", "")),
    "three words changed": (1.0, lambda row, rng: one_changed(row, rng, 3)),
    "in another order": (1.0, lambda row, rng: " ".join(rng.sample(w := row.reference.split(), len(w)))),
}


@pytest.mark.parametrize("leak", LEAKS)
def test_what_only_a_target_explains_is_contradicted_whatever_is_stated(leak):
    share, text = LEAKS[leak]
    rows, _ = written(4)
    leaked = edited(rows, text, share, seed=5)
    for controls in ({}, {"shuffled": exchanged(rows)}):
        found = quick(leaked, controls, proof="we swear that no target was given")
        assert (found.verdict.value, found.provenance.level.value) == ("not judgeable", "contradicted")


def test_targets_of_one_reader_are_contradicted():
    rows, _ = written(4)
    leaked = [dataclasses.replace(r, prediction=r.reference) if r.subject == "reader 0" else r for r in rows]
    found = quick(leaked, {"shuffled": exchanged(rows)})
    assert found.verdict.value == "not judgeable"
    assert "of one reader hold their reference to the letter" in found.sentence


def test_a_leak_above_a_weak_decoder_is_contradicted():
    rows = decoded(*written(10), 0.08)
    leaked = edited(rows, less_its_last, 0.05, seed=5)
    assert quick(rows, {}).verdict.value == "content above its null"
    assert quick(leaked, {}).verdict.value == "not judgeable"


def test_a_perfect_decoder_of_ours_is_judged():
    """By digests it is known that no target was given: a file of references alone is then a decoder without errors."""
    rows, _ = written(4)
    perfect = changed(rows, prediction=lambda row: row.reference)
    found = quick(perfect, {"shuffled": exchanged(perfect)}, decoded=DECODED_HERE)
    assert (found.verdict.value, found.provenance.level.value) == ("uses EEG", "decoded here")
    assert "target_copies" in {flag.code for flag in found.flags if flag.level == "warning"}


def test_who_decodes_letters_is_not_refused_for_marks_in_their_place():
    """Typing with a keystroke in eight wrong: a comma is a key like any other. Words wrong at random stay refused."""
    rng = np.random.default_rng(5)
    marks = np.where(rng.random((160, 14)) < 0.2, ",", "")
    texts = [" ".join(map("".join, zip(rng.choice(NOUNS, 14), found, strict=True))) for found in marks]
    typed = [row(i, reference=text, prediction=mistyped(text, rng)) for i, text in enumerate(texts)]
    found = quick(typed, {"shuffled": exchanged(typed)}, mode="free_running")
    assert found.verdict.value == "uses EEG", found.sentence
    words = changed([r for r in typed for _ in range(4)], prediction=lambda r: other_words(r.reference, rng))
    words = [dataclasses.replace(r, subject=f"S{i % 4}", sample_id=f"{i}") for i, r in enumerate(words)]
    assert "looks_teacher_forced" in [flag.code for flag in quick(words, {}, mode="free_running").flags]


NOUNS = ["gardener", "sailor", "harbour", "window", "minister", "blanket", "orchard", "traveller", "kitchen", "lantern"]


def mistyped(text, rng):
    keys = "abcdefghijklmnopqrstuvwxyz ,;"
    return "".join(keys[rng.integers(len(keys))] if rng.random() < 0.12 else letter for letter in text)


def other_words(text, rng):
    """Nearly every word is another one; marks stay."""
    return re.sub(r"\w+", lambda m: m[0] if rng.random() < 0.15 else rng.choice(NOUNS), text)


def codes(rows):
    aligned = align({"eeg": rows})
    return {flag.code for flag in signs(aligned.eeg, aligned.references)}


def numbered(text, prediction, count=40, readers="A"):
    """Rows of `count` sentences, of which `{}` is the number."""
    return [
        row(i, subject=u, sample_id=f"{u}{i}", reference=text.format(i), prediction=prediction.format(i))
        for i in range(count)
        for u in readers
    ]


def test_references_of_a_few_words_may_all_be_right():
    assert codes(numbered("a{0} b{0} c{0}", "a{0} b{0} c{0}")) <= {"few_wrong_words"}
    assert "target_copies" in codes(numbered("a{0} b{0} c{0} d{0} e{0}", "a{0} b{0} c{0} d{0} e{0}"))


def test_a_reader_of_a_few_sentences_may_have_them_all_right():
    rows, _ = written(4)
    guest = [dataclasses.replace(r, subject="guest", sample_id=f"g{r.sample_id}", prediction=r.reference)
             for r in rows[:20:4]]  # fmt: skip
    assert "target_copies" not in codes([*rows, *guest])


def test_rows_of_which_every_word_is_wrong_are_no_edited_targets():
    assert "target_edited" not in codes(numbered("a{0} b{0} c{0} d{0} e{0}", "v{0} w{0} x{0} y{0} z{0}"))


def test_one_text_that_many_references_begin_with_is_no_cut_target():
    assert "target_cut" not in codes(numbered("the man was born in a{0} b c", "the man was born in"))
    assert "target_cut" in codes(numbered("the man {0} was born in a{0} b c", "the man {0} was born"))


def test_one_text_for_all_readers_shows_among_sentences_that_some_have_right():
    """Of 60 sentences, twelve have one wrong text in all rows, and 48 are right for one reader alone."""
    rows, _ = written(3)
    some = sorted({r.sentence_id for r in rows})[:12]

    def text(r):
        right = r.reference if r.subject == "reader 0" else r.prediction
        return " ".join(f"{letter}{r.sentence_id}" for letter in "qrtuv") if r.sentence_id in some else right

    assert "input_independent" in codes(changed(rows, prediction=text))


def test_the_same_inflected_words_for_all_readers_are_no_closed_vocabulary():
    """As in a closed vocabulary, missed words are said nowhere; but what stands for them is never right."""
    own = " ".join(f"{letter}{{0}}" for letter in "abcdefgh")
    said = " ".join(f"{letter}{{0}}" + "s" * (i % 2) for i, letter in enumerate("abcdefgh"))
    assert "input_independent" in codes(numbered(own, said, readers="AB"))


def test_one_reader_may_be_right_where_all_choose_among_the_sentences_of_the_file():
    rows, _ = written(4)
    texts = sorted({r.reference for r in rows})
    others = dict(zip(texts, texts[1:] + texts[:1], strict=True))
    said = changed(rows, prediction=lambda r: r.reference if r.subject == "reader 0" else others[r.reference])
    assert "target_copies" not in codes(said)


@pytest.mark.parametrize(("words", "marks", "found"), [(0.6, 0.5, False), (0.1, 0.9, True)])
def test_marks_among_wrong_words_show_a_target_where_they_are_right_oftener_than_words(words, marks, found):
    """A decoder that reads token by token has marks right as often as words."""
    rng = random.Random(0)
    texts = [" ".join("," if rng.random() < 0.2 else f"w{rng.randrange(30)}" for _ in range(20)) for _ in range(60)]

    def token(true):
        return true if rng.random() < (marks if true == "," else words) else f"w{rng.randrange(30)}"

    rows = [
        row(i, subject=u, sample_id=f"{u} {i}", reference=f"{i} {text}", prediction=" ".join(map(token, text.split())))
        for i, text in enumerate(texts)
        for u in "ABCDEFGH"
    ]
    aligned = align({"eeg": rows})
    assert bool([*marks_alone(Rows(aligned.eeg, aligned.references))]) == found


def test_a_token_between_a_wrong_and_a_right_word_tells_nothing():
    """The comma stands between wrong words; of d and e each has the other, which is right, beside it."""
    assert _islands("a b , c d e f", "x y , z d e q").tolist() == [1, 1, 0, 0]
    assert _islands("a b c d", "x b y z").tolist() == [0, 0, 1, 1]


def rows_of(rows):
    aligned = align({"eeg": rows})
    return Rows(aligned.eeg, aligned.references)


@pytest.mark.parametrize(("whole", "lost", "found"), [(26, 8, True), (27, 7, False), (24, 8, False)])
def test_whole_targets_of_a_reader_show_beside_a_fifth_of_that_readers_rows_that_are_lost(whole, lost, found):
    """Of five words two are wrong in the other rows of A, and in all rows of five other readers."""
    own, part, none = "a{0} b{0} c{0} d{0} e{0}", "a{0} b{0} c{0} x{0} y{0}", "v{0} w{0} x{0} y{0} z{0}"
    said = [own] * whole + [none] * lost + [part] * (40 - whole - lost)
    rows = numbered(own, part, readers="ABCDEF")
    mine = [dataclasses.replace(rows[6 * i], prediction=text.format(i)) for i, text in enumerate(said)]
    messages = [message for _, message in _in_two_parts(rows_of([*mine, *(r for r in rows if r.subject != "A")]))]
    assert bool(messages) == found
    assert not found or messages[0].startswith("26 of 240 predictions are nearly or wholly their reference")
    assert not found or "206 are right in part and 8 hold next to nothing" in messages[0]


def test_a_wrong_word_counts_where_the_word_before_it_is_wrong():
    made = rows_of(numbered("a{0} b{0} c{0} d{0} e{0}", "a{0} x{0} y{0} d{0} e{0}"))
    assert forced_words._wrong_after_wrong(made) == [(i, f"c{i}", f"b{i}", f"x{i}", f"y{i}") for i in range(40)]


def follows(monkeypatch, wrong, before=40):
    """Whether 1500 wrong words seem to follow the target; `wrong` makes them of (rng, number, true, before, own)."""
    rng, places = random.Random(0), []
    for number in range(1500):
        true, own = rng.randrange(100), rng.randrange(40)
        place = true % before, own
        places.append((number % 200, f"t{true}", f"b{place[0]}", f"o{own}", wrong(rng, number, true, *place)))
    monkeypatch.setattr(forced_words, "_wrong_after_wrong", lambda _: places)
    return "looks_teacher_forced" in {code for code, _ in words_follow_the_target(None)}


def mixed(target, own):
    """A word that goes with the true word before it, with the own word before it, or with nothing, by these shares."""

    def wrong(rng, number, true, before, predicted):
        drawn = rng.random()
        return f"x{before}" if drawn < target else f"y{predicted}" if drawn < target + own else f"z{number}"

    return wrong


def test_words_follow_the_target_where_they_follow_it_more_than_the_own_word_and_after_many_words(monkeypatch):
    assert follows(monkeypatch, mixed(0.5, 0.3))
    assert not follows(monkeypatch, mixed(0.3, 0.5))
    assert not follows(monkeypatch, mixed(0.5, 0.0), before=5), "after five words alone"
    assert not follows(monkeypatch, lambda rng, number, true, *_: f"m{true}"), "the same true words in their place"


def test_a_reader_without_errors_beside_another_does_not_show_the_number_of_marks():
    own = [f"a{i} b{i} c{i} d{i} e{i}" + " ," * (i % 4) for i in range(40)]
    said = {"A": own, "B": [text.replace("c", "x") for text in own], "C": [text.replace("d", "y") for text in own]}
    rows = [row(i, subject=u, sample_id=f"{u}{i}", reference=text) for i, text in enumerate(own) for u in said]
    rows = [dataclasses.replace(r, prediction=said[r.subject][int(r.sample_id[1:])]) for r in rows]
    assert [*marks_of_target(rows_of([r for r in rows if r.subject in "AB"]))] == []
    assert [code for code, _ in marks_of_target(rows_of(rows))] == ["target_length"]


def test_a_prediction_holds_its_reference_whatever_parts_its_words():
    texts = ("Well-known {0} men went off home.", "so wellknown {0} MEN went off home now")
    assert rows_of(numbered(*texts)).whole.all()
    assert not rows_of(numbered(texts[0], "so wellknown {0} men went home now")).whole.any()


def test_a_prediction_is_limited_where_its_reference_is_longer():
    cut = numbered("a{0} b{0} c{0} d{0} e{0} f{0} g{0}", "a{0} b{0} c{0} d{0} e{0}")
    whole = row(40, reference="h i j k l", prediction="h i j k l")
    assert rows_of([*cut, whole]).limited.tolist() == [True] * 40 + [False]
