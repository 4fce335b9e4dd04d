"""Pairs: what is read, what is refused and with which words, how they are divided, and controlled edits."""

import dataclasses
import random

import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.judge._edits import BREAKING, HARMLESS, Corpus, contraction, edit_sentence, make_pairs, make_speakers
from eeg2text_jax.judge.pairs import Pair, divide, normalize, pairs_digest, read_pairs
from eeg2text_jax.judge.toy import sentences

HEADER = "reference\thypothesis\tlabel\n"


def write(tmp_path, text, name="pairs.tsv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_columns_are_read_in_any_order_and_by_their_other_names(tmp_path):
    text = 'speaker,Transcript,preserved,ground_truth\nS1,a tree,no,the tree\nS2,"one, two",yes,one two\n'
    found = read_pairs(write(tmp_path, "\ufeff" + text, "pairs.csv"))
    assert found[0] == Pair("the tree", "a tree", False, "no", speaker="S1")
    assert found[1].hypothesis == "one, two"
    assert found[1].preserved


def test_the_digest_of_pairs_is_that_of_version_0_2_where_no_pair_has_an_etiology():
    """By 0.2.0: a checkpoint of a judge names the pairs that it was tuned on."""
    pairs = [Pair("a b", "a c", False, "2", speaker="S1", severity="mild"), Pair("é", "é", True, "yes", kind="number")]
    assert pairs_digest(pairs) == "e2424f43aab6f61acab838e10f2f823bd56a1f95a459005f48260ce6a48e6aea"
    other = [dataclasses.replace(pairs[0], etiology=name) for name in ("ALS", "stroke")]
    assert len({pairs_digest([pair]) for pair in [pairs[0], *other]}) == 3


def test_severities_0_and_1_count_as_preserved(tmp_path):
    rows = "".join(f"a b c\ta b\t{label}\n" for label in "012")
    assert [pair.preserved for pair in read_pairs(write(tmp_path, HEADER + rows))] == [True, True, False]


@pytest.mark.parametrize(("labels", "expected"), [("severity", [True, True]), ("preserved", [False, True])])
def test_labels_of_0_and_1_alone_have_to_be_explained(tmp_path, labels, expected):
    path = write(tmp_path, HEADER + "a b\ta\t0\na b\tb\t1\n")
    with pytest.raises(UserError, match="--labels=severity or --labels=preserved"):
        read_pairs(path)
    assert [pair.preserved for pair in read_pairs(path, labels)] == expected
    path.write_text(HEADER + "a b\ta\t1\n")
    with pytest.raises(UserError, match="all labels are 0 or 1"):
        read_pairs(path)
    path.write_text(HEADER + "a b\ta\t1\na b\tb\tyes\n")
    with pytest.raises(UserError, match="labels of both kinds, 1, yes"):
        read_pairs(path, labels)


BAD = {
    "empty": ("", "is empty"),
    "no header": ("the tree\ta tree\t2\n", "line 1: is no header"),
    "unknown column": ("reference\thypothesis\tlabel\tmood\n", "the column 'mood' is not known"),
    "missing column": ("reference\tlabel\n", "no column 'hypothesis'"),
    "doubled column": ("reference\tground_truth\thypothesis\tlabel\n", "two columns for 'reference'"),
    "another label": (HEADER + "a b\ta\tmaybe\n", "line 2: the label is 'maybe'"),
    "both kinds": (HEADER + "a b\ta\tyes\na b\ta\t2\n", "labels of both kinds"),
    "blank reference": (HEADER + "a b\ta\t2\n . \ta\t1\n", "line 3: the reference is blank"),
    "not UTF-8": (b"reference\thypothesis\tlabel\na b\ta\xff\t2\n", "line 2: is not UTF-8"),
    "ragged": (HEADER + "a b\ta\t2\na b\t2\n", "line 3: has 2 fields, but the header has 3"),
    "open quote": (HEADER + 'a b\t"a\t2\n', "line 2: "),
    "zero byte": (HEADER + "a\0b\ta\t2\n", "zero byte"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_by_line(tmp_path, name, refused):
    text, message = BAD[name]
    path = write(tmp_path, text)
    with pytest.raises(UserError, match=message) as error:
        read_pairs(path)
    assert "pairs.tsv" in str(error.value)
    refused_by_the_command(path, str(error.value), refused)


def refused_by_the_command(path, message, refused):
    """One sentence and status 2, and nothing but the configuration in the folder."""
    config, work = f"--config=configs/judge.py:checkpoint={path.parent},pairs={path}", path.parent / "work"
    told = refused(["judge", config, f"--workdir={work}", "--config.compilation_cache="])
    assert told == f"eeg2text judge: {message}"
    assert [found.name for found in work.iterdir() if not found.name.startswith(".")] == ["config.json"]


def test_other_files_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"ends in \.tsv or \.csv"):
        read_pairs(write(tmp_path, HEADER, "pairs.txt"))
    with pytest.raises(UserError, match="cannot be read"):
        read_pairs(tmp_path / "none.tsv")


def some_pairs(n=40):
    rated = ("yes", "no")
    return [Pair(f"sentence number {i} here", f"sentence {i} there", i % 2 == 0, rated[i % 2]) for i in range(n)]


def test_no_ground_truth_is_in_two_parts_and_exact_pairs_are_set_apart():
    again = [Pair(f"Sentence NUMBER {i}, here!", "so", False, "no") for i in range(40)]
    exact = [Pair("Well, done.", "well done", True, "0"), Pair(again[3].reference, "Sentence number 3 here.", True)]
    parts = divide([*some_pairs(), *again, *exact], (0.6, 0.2, 0.2), 1, "file")
    known = [{normalize(pair.reference) for pair in part} for part in (parts.train, parts.dev, parts.test)]
    assert sum(map(len, known)) == len(set.union(*known)) == 40
    assert parts.exact == 2
    assert not any(pair.is_exact for pair in (*parts.train, *parts.dev, *parts.test))


def test_pairs_without_an_error_that_count_in_the_test_have_the_ground_truths_of_test():
    right = [Pair(pair.reference, pair.reference, True) for pair in some_pairs()]
    parts = divide([*some_pairs(), *right], (0.6, 0.2, 0.2), 1, "file")
    assert {pair.reference for pair in parts.exact_test} == {pair.reference for pair in parts.test}
    assert parts.exact == len(right)


def test_the_first_rating_counts_and_the_second_goes_to_kappa():
    one = Pair("a b c", "a b", True, "1", rater="A")
    other = Pair("a b c", "a b", False, "2", rater="B")
    parts = divide([*some_pairs(), one, other], (0.6, 0.2, 0.2), 0, "file")
    assert parts.rated_twice == [(one, other)]
    assert sum(map(len, (parts.train, parts.dev, parts.test))) == 41


def test_too_few_references_and_single_classes_are_refused(tmp_path, refused):
    path = write(tmp_path, HEADER + "a b\ta\tyes\nc d\tc\tno\n")
    said = f"{path}: has 2 different references whose hypothesis has an error; expected at least 10; give more pairs."
    refused_by_the_command(path, said, refused)
    with pytest.raises(UserError, match="has 9 different references"):
        divide(some_pairs(9), (0.6, 0.2, 0.2), 0, "file")
    with pytest.raises(UserError, match="has only pairs that lose the meaning"):
        divide([Pair(f"one {i} two", "x", False, "2") for i in range(30)], (0.6, 0.2, 0.2), 0, "file")


def test_controlled_edits_have_the_classes_and_the_words_they_claim():
    text = list(sentences(200))
    made = make_pairs(text, per_sentence=2, preserved=0.43, seed=0)
    assert len(made) > 390
    share = sum(pair.preserved for pair in made) / len(made)
    assert 0.36 < share < 0.50
    assert {pair.kind for pair in made} == {"", *BREAKING}
    assert all((pair.rated == "2") == bool(pair.kind) == (not pair.preserved) for pair in made)
    assert not any(pair.is_exact for pair in made)
    assert made == make_pairs(text, per_sentence=2, preserved=0.43, seed=0)


CASES = {
    "contraction": ("They do not like it at all.", {"They don't like it at all."}),
    "numeral": ("He has three small dogs here.", {"He has 3 small dogs here."}),
    "negation": ("The film is a great success.", {"The film is not a great success."}),
    "antonym": ("She was born on a farm.", {"She was buried on a farm."}),
}


@pytest.mark.parametrize("kind", CASES)
def test_single_edits(kind):
    text, expected = CASES[kind]
    corpus = Corpus.of([text, *sentences(30)])
    changed = " ".join((HARMLESS | BREAKING)[kind](text.split(), random.Random(0), corpus))
    assert changed in expected


def test_a_typo_is_no_word_of_the_corpus():
    corpus = Corpus.of(["They went through it, though the committee had said no."])
    for word, lost in (("through", "though"), ("committee", "committee")):
        made = [HARMLESS["typo"]([word], random.Random(seed), corpus) for seed in range(200)]
        assert lost not in {words[0] for words in made if words}
        assert sum(words is not None for words in made) > 190


def test_stop_words_short_words_and_years_are_not_dropped():
    text = "in 1999 the old king of spain sold the red castle to an ox and a queen between them"
    made = BREAKING["drop"](text.split(), random.Random(0), Corpus.of([text]))
    assert not {"in", "1999", "the", "of", "to", "an", "ox", "and", "a", "between"} & {*text.split()} - {*made}
    assert 2 <= len(text.split()) - len(made) <= 4


def test_the_rarest_words_are_dropped():
    common = "king castle river forest"
    corpus = Corpus.of([f"{common} and the {word} also" for word in ("garden", "window", "window", "bridge")])
    text = "the king saw a window of castle and garden by river and forest with bridge"
    for seed in range(5):
        made = BREAKING["drop"](text.split(), random.Random(seed), corpus)
        assert {*text.split()} - {*made} == {"saw", "window", "garden"} or {*text.split()} - {*made} == {
            "saw", "garden", "bridge"
        }  # fmt: skip


def test_a_cut_sentence_keeps_its_first_half_or_so():
    words = [f"word{n}" for n in range(40)]
    for seed in range(50):
        made = BREAKING["cut"](words, random.Random(seed), Corpus.of([" ".join(words)]))
        assert made == words[: len(made)]
        assert 15 <= len(made) <= 26


def test_a_word_with_a_capital_letter_in_one_place_and_without_in_another_is_no_name():
    corpus = Corpus.of(["We met Anna and the Bear in town.", "Later a bear and a dog met us."])
    assert corpus.names == ("Anna",)


@pytest.mark.parametrize("kind", ["inflect", "confusion"])
def test_names_are_not_edited_as_common_words(kind):
    corpus, edit = Corpus.of(list(sentences(200))), (HARMLESS | BREAKING)[kind]
    changed = [word for word in corpus.content if edit([word], random.Random(0), corpus)]
    assert len(changed) > 10
    assert not any(edit([word.capitalize()], random.Random(0), corpus) for word in changed)


def test_a_sentence_that_allows_no_edit_gives_no_pair():
    assert edit_sentence("x", 0, False, random.Random(0), Corpus.of(list(sentences(20)))) is None


def test_made_up_speakers_differ_in_what_their_errors_do():
    made = make_speakers(list(sentences(100)), speakers=10, utterances=50, seed=0)
    share = {n: [pair.preserved for pair in made if pair.speaker == f"S{n}"] for n in range(1, 11)}
    rates = {n: sum(kept) / len(kept) for n, kept in share.items()}
    assert max(rates.values()) > 0.8
    assert min(rates.values()) < 0.5


def test_a_sentence_may_end_with_a_contraction_without_a_full_stop():
    words, corpus = ["we", "think", "that", "we"], Corpus.of([])
    assert contraction([*words, "cannot"], random.Random(0), corpus) is None
    assert contraction([*words, "can't"], random.Random(0), corpus) == [*words, "cannot"]


def test_a_sentence_of_two_content_words_loses_none():
    words = ["the", "dog", "saw", "it", "on", "the"]
    assert BREAKING["drop"](words, random.Random(0), Corpus.of([" ".join(words)])) is None


def test_a_name_is_replaced_by_that_of_another_sentence():
    """Both names of the sentence itself are no other ones."""
    own, another = "We met Anna and Boris in town.", "Then we saw Clara in town."
    assert BREAKING["entity"](own.split(), random.Random(0), Corpus.of([own])) is None
    for seed in range(20):
        made = BREAKING["entity"](own.split(), random.Random(seed), Corpus.of([own, another]))
        assert "Clara" in made
        assert len({"Anna", "Boris"} & set(made)) == 1


def test_a_number_becomes_another_number_and_a_sentence_another_sentence():
    own, another = "It has 12 doors and windows.", "He saw a dog in town."
    corpus = Corpus.of([own, another])
    assert all("12" not in BREAKING["number"](own.split(), random.Random(seed), corpus) for seed in range(400))
    assert all(BREAKING["other"](own.split(), random.Random(seed), corpus) == another.split() for seed in range(20))
    assert BREAKING["other"](own.split(), random.Random(0), Corpus.of([own])) is None


def test_an_exponent_is_part_of_no_number():
    """Superscripts and digits in circles are digits to Python, and no numbers."""
    words, corpus = ["some", "10²", "m", "②", "7"], Corpus.of([])
    assert BREAKING["number"](words[:-1], random.Random(0), corpus) is None
    made = [BREAKING["number"](words, random.Random(seed), corpus) for seed in range(20)]
    assert all(found[:-1] == words[:-1] and found[-1] != "7" for found in made)


@pytest.mark.parametrize(("written", "farthest"), [("1999", 39), ("1000", 39), ("500", 89), ("100", 89)])
def test_a_year_moves_by_two_or_more_and_so_does_a_number_of_three_digits(written, farthest):
    rng, corpus, moves = random.Random(0), Corpus.of([]), set()
    for _ in range(4000):
        first, said = BREAKING["number"](["in", f"({written})."], rng, corpus)
        assert (first, said[0], said[-2:]) == ("in", "(", ").")
        moves.add(int(said[1:-2]) - int(written))
    assert moves == {sign * by for sign in (-1, 1) for by in range(2, farthest + 1)}


ARTICLES = {  # sentence -> what it may become
    "The dog barks.": {"dog barks.", "A dog barks."},
    "An ox saw it.": {"ox saw it.", "The ox saw it."},
    "We saw the (a) dog.": {"We saw (a) dog.", "We saw the dog.", "We saw a (a) dog.", "We saw the (the) dog."},
    "We saw them all.": {None},
}


@pytest.mark.parametrize("text", ARTICLES)
def test_an_article_is_dropped_or_exchanged(text):
    made = [HARMLESS["article"](text.split(), random.Random(seed), Corpus.of([])) for seed in range(60)]
    assert {words and " ".join(words) for words in made} == ARTICLES[text]


@pytest.mark.parametrize(("harmless", "more"), [(0, 0), (1, 1), (2, 2), (4, 2)])
def test_edits_of_a_sentence_add_up(harmless, more, monkeypatch):
    """The sentence allows one loss, a cut to two or three words, and two harmless edits: a word said twice, and um."""
    monkeypatch.setattr("eeg2text_jax.judge._edits.FILLERS", ("um",))
    for seed in range(40):
        pair = edit_sentence("xq zq xj qk vv", harmless, True, random.Random(seed), Corpus.of([]))
        assert (pair.kind, pair.rated, pair.preserved) == ("cut", "2", False)
        words = pair.hypothesis.split()
        kept = {*words} - {"um"}
        assert kept in ({"xq", "zq"}, {"xq", "zq", "xj"})
        assert len(words) == len(kept) + more
        assert "um" in words or more < 2


@pytest.mark.parametrize(("text", "edits", "rated"), [("xq zq xj qk vv", 1, "0"), ("the the the the the", 4, "1")])
def test_fillers_and_repeated_words_change_nothing_and_articles_a_little(text, edits, rated):
    corpus = Corpus.of(list(sentences(20)))
    made = [edit_sentence(text, edits, False, random.Random(seed), corpus) for seed in range(10)]
    assert {pair.rated for pair in made} == {rated}
    assert all(pair.preserved for pair in made)


def test_parts_have_their_shares_of_the_ground_truths():
    parts, same, other = (divide(some_pairs(40), (0.6, 0.25, 0.15), seed, "file") for seed in (1, 1, 2))
    assert [len(part) for part in (parts.train, parts.dev, parts.test)] == [24, 10, 6]
    assert same == parts != other


def test_a_pair_is_rated_twice_by_two_raters_of_one_utterance():
    """Another speaker's pair of the same texts, and a rater's own second one, are pairs of their own."""
    one = Pair("a b c", "a b", True, "1", rater="A", speaker="S1")
    others = [dataclasses.replace(one, **of) for of in ({"speaker": "S2", "rater": "B"}, {}, {"id": "7", "rater": "B"})]
    parts = divide([*some_pairs(), one, *others], (0.6, 0.2, 0.2), 0, "file")
    assert parts.rated_twice == []
    assert sum(map(len, (parts.train, parts.dev, parts.test))) == 44
