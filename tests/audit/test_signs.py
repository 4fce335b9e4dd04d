"""Signs of a target: what teacher forcing and copied targets show, and what honest decoders of any kind do not."""

import dataclasses
import functools
import random
import re

import numpy as np
import pytest
from cheats import CHEATS
from decoder_zoo import draw
from rows import changed, row

from eeg2text_jax.instrument.auditing._signs import Weight, signs_of
from eeg2text_testing.decoders import by_language, chosen, decoded, of_words, word_by_word, written

CONTRADICTED, ODD = Weight.CONTRADICTED, Weight.ODD
NOUNS = ["gardener", "sailor", "harbour", "window", "minister", "blanket", "orchard", "traveller", "kitchen", "lantern"]


def signs(rows, **options):
    references = sorted({r.reference for r in rows})
    sentence = np.array([references.index(r.reference) for r in rows])
    return signs_of([r.prediction for r in rows], references, sentence, [r.subject for r in rows], **options)


def found(rows, **options):
    return {sign.code: sign.weight for sign in signs(rows, **options)}


def said(rows, text, seed=0):
    rng = random.Random(seed)
    return [dataclasses.replace(r, prediction=text(r, rng)) for r in rows]


def words_of(r):
    return r.reference.split()


# What teacher forcing shows -----------------------------------------------------------


@pytest.mark.parametrize("right", [0.1, 0.4])
def test_wrong_words_that_follow_the_true_word_before_them_contradict(right):
    rows, after = of_words()
    assert found(by_language(rows, after, right, forced=False)) == {}
    forced = signs(by_language(rows, after, right, forced=True))
    assert [(sign.code, sign.weight) for sign in forced] == [("looks_teacher_forced", CONTRADICTED)]
    word, before = re.search(r"as in '(\w+)' after a true '(\w+)'", forced[0].message).groups()
    assert len(forced[0].rows) == 2
    for reference, prediction in forced[0].rows:
        assert word in prediction.split()
        assert before in reference.split()


def templates(classes=10):
    """Sentences of classes; a class has a word of its own in most places, and a place has a word of its own."""
    rng, rows = random.Random(3), []
    for c in range(classes):
        fixed = [f"t{c}x{place}" if rng.random() < 0.6 else "" for place in range(12)]
        for number in range(9):
            text = " ".join(word or f"s{c}x{place}v{rng.randrange(8)}" for place, word in enumerate(fixed))
            fields = {"reference": text, "task": f"{c}"}
            rows += [row(f"{c}-{number}", subject=u, sample_id=f"{u}{c}-{number}", **fields) for u in "ABCDE"]
    return rows


def test_a_decoder_of_the_class_alone_shows_nothing_although_its_words_go_with_the_words_before():
    """After the same true word its wrong words are equal, and before the same true word just as often."""
    rows = templates()
    classes = {}
    for r in rows:
        classes.setdefault(r.task, []).append(r.reference)
    every = [word for r in rows for word in words_of(r)]

    def template(r, rng):
        return " ".join(w if rng.random() < 0.6 else rng.choice(every) for w in rng.choice(classes[r.task]).split())

    def bag(r, rng):
        return " ".join(rng.choices([w for text in classes[r.task] for w in text.split()], k=rng.randrange(8, 15)))

    assert found(said(rows, template)) == {}
    assert found(said(rows, bag)) == {}


def test_a_decoder_of_the_class_of_each_word_shows_nothing():
    """Words of a class follow words of another in every sentence; wrong words are of the class of the true word."""
    rng, kinds = random.Random(0), [[f"k{k}w{i}" for i in range(1, 25)] for k in range(8)]

    def one_of(kind, rng):
        return kinds[kind][int(rng.random() ** 3 * 24)]

    rows = []
    for s in range(90):
        kind = [rng.randrange(8)]
        while len(kind) < 14:
            kind.append((kind[-1] + rng.choice((1, 1, 1, 3))) % 8)
        text = " ".join(one_of(k, rng) for k in kind)
        rows += [row(s, subject=u, sample_id=f"{u}{s}", reference=text) for u in "ABCD"]

    def same_class(r, rng):
        return " ".join(w if rng.random() < 0.2 else one_of(int(w[1]), rng) for w in words_of(r))

    assert found(said(rows, same_class)) == {}


def test_a_decoder_whose_words_follow_its_own_shows_nothing():
    """It reads a word as one of like meaning or, where it reads none, says what its language has after its own word."""
    rng, near = random.Random(0), 3
    follow = [[rng.randrange(40) for _ in range(4)] for _ in range(40)]
    usual = [f"m{rng.randrange(40)}x0" for _ in range(40)]
    rows = []
    for s in range(90):
        meaning = [rng.randrange(40)]
        while len(meaning) < 14:
            meaning.append(rng.choice(follow[meaning[-1]]))
        text = " ".join(f"m{m}x{rng.randrange(near)}" for m in meaning)
        rows += [row(s, subject=u, sample_id=f"{u}{s}", reference=text) for u in "ABCD"]

    def read(r, rng):
        out = ["m0x0"]
        for word in words_of(r):
            like = f"{word.split('x')[0]}x{rng.randrange(near)}"
            out.append(like if rng.random() < 0.5 else usual[int(out[-1][1:].split("x")[0])])
        return " ".join(out[1:])

    assert found(said(rows, read)) == {}


@pytest.mark.parametrize("kind", ["forced_sampled", "forced_greedy"])
def test_in_text_of_templates_forced_words_contradict_although_templates_tell_of_words_on_both_sides(kind):
    assert found(draw(kind, 0.3, 0).eeg) == {"looks_teacher_forced": CONTRADICTED}


@pytest.mark.parametrize("right", [0.05, 0.3])
def test_in_text_of_templates_a_decoder_of_like_meanings_shows_nothing(right):
    """A wrong word is one that stands between the same words as the true one."""
    drawn, around = draw("forced_sampled", right, 0), {}
    for text, _ in drawn.scene.training:
        before = text.split()
        for a, word, b in zip(["", *before], before, [*before[1:], ""], strict=False):
            around.setdefault(word, set()).update({a, f"{b} after"})

    @functools.cache
    def like(word):
        own = around.get(word, set())
        return sorted(around, key=lambda other: (-len(own & around[other]) / len(own | around[other]), other))[1:6]

    said_words = said(
        drawn.eeg, lambda r, rng: " ".join(w if rng.random() < right else rng.choice(like(w)) for w in words_of(r))
    )
    assert found(said_words) == {}


def punctuated(sentences=60, readers=4, seed=5):
    rng = np.random.default_rng(seed)
    marks = np.where(rng.random((sentences, 14)) < 0.2, ",", "")
    texts = [" ".join(map("".join, zip(rng.choice(NOUNS, 14), marks[s], strict=True))) for s in range(sentences)]
    return [
        row(s, subject=f"S{u}", sample_id=f"{u}-{s}", reference=text)
        for s, text in enumerate(texts)
        for u in range(readers)
    ]


def with_marks(words, marks):
    """Each word right with a chance, and each comma, as if they were decoded one by one."""

    def text(r, rng):
        parts = (re.match(r"(\w+)(,?)", w).groups() for w in words_of(r))
        read = ((w if rng.random() < words else rng.choice(NOUNS), m * (rng.random() < marks)) for w, m in parts)
        return " ".join(map("".join, read))

    return text


def test_marks_that_are_right_among_wrong_words_contradict():
    forced = signs(said(punctuated(), with_marks(0.1, 0.9)))
    assert [(sign.code, sign.weight) for sign in forced] == [("looks_teacher_forced", CONTRADICTED)]
    assert "of the marks between two wrong words" in forced[0].message
    assert all("," in prediction for _, prediction in forced[0].rows)


@pytest.mark.parametrize(("words", "marks"), [(0.4, 0.35), (0.9, 0.9)])
def test_a_decoder_that_has_words_right_as_often_as_marks_shows_nothing(words, marks):
    assert found(said(punctuated(readers=8), with_marks(words, marks))) == {}


def test_typing_letter_by_letter_shows_nothing_where_a_comma_is_a_key_like_any_other():
    keys = "abcdefghijklmnopqrstuvwxyz ,;"

    def mistyped(r, rng):
        return "".join(rng.choice(keys) if rng.random() < 0.12 else letter for letter in r.reference)

    assert found(said(punctuated(160, 1), mistyped)) == {}


def test_a_decoder_of_the_kind_of_sentence_may_punctuate_as_its_kind_does():
    """Sentences of a kind have commas in the same places; the decoder knows the kind and no word."""
    rows = []
    for s in range(100):
        places = ({2, 5}, {3, 9}, {1, 7, 11}, {4}, {6, 8})[s % 5]
        text = " ".join(f"{w}{',' * (i in places)}" for i, w in enumerate(random.Random(s).choices(NOUNS, k=14)))
        tagged = f"kind{s % 5} of{s % 5} {text}"
        rows += [row(s, subject=u, sample_id=f"{u}{s}", reference=tagged) for u in "ABCD"]
    assert found(said(rows, with_marks(0.05, 1.0))) == {}


# Copies -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["the target", "in capitals", "with one more mark", "with words after it", "twice"])
def test_a_file_that_holds_its_references_with_their_punctuation_is_contradicted(name):
    assert found(CHEATS[name]())["target_copies"] is CONTRADICTED


@pytest.mark.parametrize("name", ["without marks", "with other marks", "of one reader"])
def test_words_without_the_punctuation_of_the_target_and_copies_of_one_reader_are_odd(name):
    assert found(CHEATS[name]())["target_copies"] is ODD


def test_a_decoder_without_errors_is_not_contradicted_where_it_can_be_told_apart():
    rows, vocabulary = written(4)
    perfect = changed(rows, prediction=lambda r: r.reference)
    assert found(perfect)["target_copies"] is CONTRADICTED
    assert found(perfect, choices=[r.reference for r in rows])["target_copies"] is ODD, "it chose from a list"
    plain = changed(perfect, reference=lambda r: r.reference.replace(",", ""))
    plain = changed(plain, prediction=lambda r: r.reference)
    assert found(plain) == {"target_copies": ODD}, "nothing that a recording does not tell"
    other = [dataclasses.replace(r, prediction=rows[9].reference) if i == 100 else r for i, r in enumerate(perfect)]
    assert found(other)["target_copies"] is ODD, "what is wrong is another sentence of the file"
    assert found(decoded(rows, vocabulary, 0.99)) == {}, "right in 99 % of the words"


def test_references_of_a_few_words_and_readers_of_a_few_sentences_may_all_be_right():
    short = [row(i, reference=f"a{i} b{i}, c{i}", prediction=f"a{i} b{i}, c{i}") for i in range(40)]
    assert found(short) == {}
    rows, _ = written(4)
    guest = [dataclasses.replace(r, subject="guest", prediction=r.reference) for r in rows[:20:4]]
    assert found([*rows, *guest]) == {}


# Odd ----------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.05, 0.2, 0.6])
def test_whole_targets_among_lost_rows_are_odd_and_so_is_a_reader_who_attends_or_not(share):
    rows, vocabulary = written(4)
    good = decoded(rows, vocabulary, 0.99)
    rng = random.Random(1)
    leaked = [g if rng.random() < share else r for r, g in zip(rows, good, strict=True)]
    shown = {sign.code: sign for sign in signs(leaked)}
    assert {code: sign.weight for code, sign in shown.items()} == {"whole_or_lost": ODD}
    (whole, prediction), (_, other) = shown["whole_or_lost"].rows
    assert len(set(whole.split()) & set(prediction.split())) > len(set(whole.split()) & set(other.split()))


def test_a_good_reader_among_poor_ones_and_a_choice_from_a_list_are_not_odd():
    rows, vocabulary = written(10)
    good = decoded([r for r in rows if r.subject == "reader 0"], vocabulary, 0.95)
    assert found(good + [r for r in rows if r.subject != "reader 0"]) == {}
    assert found(chosen(rows, 0.4)) == {}
    others = sorted({r.reference for r in written(1, seed=9, sentences=300)[0]})
    listed = said(rows, lambda r, rng: r.reference if rng.random() < 0.4 else rng.choice(others))
    assert found(listed) == {"whole_or_lost": ODD}
    assert found(listed, choices=[*others, *{r.reference for r in rows}]) == {}


def test_one_wrong_text_for_all_readers_is_odd_unless_they_were_averaged():
    rows = CHEATS["half replaced, one text for all readers"]()
    one, other = signs(rows)[0].rows
    assert one[0] != other[0]
    assert found(rows) == {"input_independent": ODD}
    assert found(rows, averaged=True) == {}
    assert found(decoded(*written(4), 0.5)) == {}
    assert found(changed(written(4)[0], prediction="he was born in the town")) == {}, "a constant"


@pytest.mark.parametrize("given", [1, 2, 3])
def test_first_words_of_the_target_before_babble_are_odd(given):
    rows, _ = written(4)
    begun = signs(said(rows, lambda r, _: " ".join(words_of(r)[:given] + r.prediction.split()[given:])))
    assert [(sign.code, sign.weight) for sign in begun] == [("target_beginning", ODD)]
    assert all(r.split()[:given] == p.split()[:given] for r, p in begun[0].rows)


def test_a_tag_of_the_sentence_on_both_sides_is_named_and_a_common_opening_is_not():
    rows, _ = written(4)
    tag = {r.reference: f"S1 trial {i} " for i, r in enumerate(rows)}
    tagged = changed(
        rows, reference=lambda r: tag[r.reference] + r.reference, prediction=lambda r: tag[r.reference] + r.prediction
    )
    assert found(tagged) == {"target_beginning": ODD}
    opened = changed(rows, reference=lambda r: f"a man {r.reference}", prediction=lambda r: f"a man {r.prediction}")
    assert found(opened) == {}


# Honest decoders ------------------------------------------------------------------------


@pytest.mark.parametrize("maker", [decoded, word_by_word])
@pytest.mark.parametrize("readers", [1, 4])
def test_decoders_of_any_quality_show_nothing(maker, readers):
    rows, vocabulary = written(readers)
    assert [found(maker(rows, vocabulary, right)) for right in (0.05, 0.3, 0.6, 0.9, 0.99)] == [{}] * 5


def exchanged_neighbors(r, rng):
    words = [w if rng.random() < 0.95 else f"x{rng.randrange(99)}" for w in words_of(r)]
    for i in range(len(words) - 1):
        if rng.random() < 0.15:
            words[i], words[i + 1] = words[i + 1], words[i]
    return " ".join(words)


def test_neighbors_exchanged_special_tokens_left_in_and_an_early_stop_show_nothing():
    rows, vocabulary = written(4)
    assert found(said(rows, exchanged_neighbors)) == {}
    padded = changed(decoded(rows, vocabulary, 0.6), prediction=lambda r: f"</s><s>{r.prediction}</s><pad><pad>")
    assert found(padded) == {}
    stopped = changed(decoded(rows, vocabulary, 0.97), prediction=lambda r: " ".join(r.prediction.split()[:8]))
    assert found(stopped) == {}


# The set of rows alone --------------------------------------------------------------------


def forms(rows):
    rng = random.Random(2)
    yield rng.sample(rows, len(rows))
    yield sorted(rows, key=lambda r: r.prediction)
    yield changed(rows, subject=lambda r: f"Z{r.subject[::-1]}")
    yield changed(rows, reference=lambda r: r.reference.upper())
    yield changed(rows, prediction=lambda r: f"<s>{r.prediction}</s><pad><pad>")
    yield changed(rows, prediction=lambda r: f"{r.prediction} <|endoftext|>", reference=lambda r: f"{r.reference}.")
    yield changed(rows, prediction=lambda r: " ".join(f"\u0120{word}" for word in r.prediction.split()))


LANGUAGE = of_words(60)
SETS = {
    "forced": by_language(*LANGUAGE, 0.2, forced=True),
    "marks": said(punctuated(), with_marks(0.1, 0.9)),
    "copies": CHEATS["the target"](),
    "in few": CHEATS["in 20 % of rows"](),
    "one text": CHEATS["nine tenths replaced, one text for all"](),
    "free": by_language(*LANGUAGE, 0.2, forced=False),
}


@pytest.mark.parametrize("name", SETS)
def test_signs_do_not_depend_on_order_names_and_forms(name):
    first = [(sign.code, sign.weight, sign.message) for sign in signs(SETS[name])]
    assert bool(first) == (name != "free")
    for other in forms(SETS[name]):
        assert [(sign.code, sign.weight, sign.message) for sign in signs(other)] == first


def test_every_sign_shows_two_rows_of_the_file():
    for rows in SETS.values():
        for sign in signs(rows):
            assert len(sign.rows) == 2
            assert {*sign.rows} <= {(r.reference, r.prediction) for r in rows}
