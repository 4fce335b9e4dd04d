"""Beam search on lattices drawn by hand, and against a slow reference on random Markov models."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from slow_reference import slow_beam_search
from toy_models import MarkovModel, first_order, random_tables, sentences

from eeg2text_jax.base import cpu
from eeg2text_jax.decoding.generate import generate, search
from eeg2text_jax.decoding.settings import GenerationSpec

START, PAD, END, A, B, C, D = range(7)
MODEL = MarkovModel()


def spec(**settings):
    return GenerationSpec(decoder_start_token_id=START, pad_token_id=PAD, eos_token_id=END, **settings)


def paths(edges, vocabulary=7, **settings):
    """The decoded paths without start token and padding, best first, with their scores."""
    out = generate(MODEL, first_order(edges, vocabulary), sentences(1), spec(**settings))
    return [row[1:length].tolist() for row, length in zip(np.asarray(out.sequences), out.lengths, strict=True)], out


#          .6      .51
#   start ----> A -----> END     0.306   the greedy path ends at .6 * .51
#     \          \ .49
#      \          `----> C -> END (1.0)   0.294
#       \ .4      .9
#        `----> B -----> D -> END (1.0)   0.36   the best
LATTICE = {
    START: {A: 0.6, B: 0.4},
    A: {END: 0.51, C: 0.49},
    B: {D: 0.9, END: 0.1},
    C: {END: 1.0},
    D: {END: 1.0},
    END: {END: 1.0},
    PAD: {PAD: 1.0},
}


def test_greedy_takes_the_better_first_step():
    found, out = paths(LATTICE, max_length=6)
    assert found == [[A, END]]
    assert int(out.steps[0]) == 2
    np.testing.assert_allclose(out.scores, np.log([0.6 * 0.51]), rtol=1e-5)


def test_the_score_of_a_greedy_path_is_of_what_the_processors_left():
    """As the score of a beam: of the tokens that may come, not of those that are forbidden."""
    found, out = paths(LATTICE, max_length=6, suppress_tokens=(A,))
    assert found == [[B, D, END]]
    np.testing.assert_allclose(out.scores, np.log([0.9]), rtol=1e-4)  # B is certain, as A may not come


def test_a_greedy_path_that_has_ended_gains_no_more():
    """Beside sentences that go on, its score stays that of its own tokens."""
    tables = random_tables(np.random.default_rng(2), 6, 6, spread=2.0)
    together = generate(MODEL, tables, sentences(6), spec(max_length=9))
    assert len({*together.lengths.tolist()}) > 1
    for row in range(6):
        alone = generate(MODEL, {"table": tables["table"][row : row + 1]}, sentences(1), spec(max_length=9))
        np.testing.assert_array_equal(together.sequences[row], alone.sequences[0])
        np.testing.assert_allclose(together.scores[row], alone.scores[0], rtol=1e-5)


def test_beam_finds_the_best_path_behind_the_worse_first_step():
    found, out = paths(LATTICE, max_length=6, num_beams=2, num_return_sequences=2, length_penalty=0.0)
    assert found == [[B, D, END], [A, END]]
    np.testing.assert_allclose(out.scores, np.log([0.36, 0.306]), rtol=1e-5)


def test_early_stopping_keeps_the_first_k_finished():
    # With one good path ending at once and a second bad one ending too, True stops before the better long path.
    lattice = {
        START: {A: 0.5, END: 0.5},
        A: {END: 0.5, B: 0.5},
        B: {C: 1.0}, C: {D: 1.0}, D: {END: 1.0}, END: {END: 1.0}, PAD: {PAD: 1.0},
    }  # fmt: skip
    settings = {"max_length": 8, "num_beams": 2, "num_return_sequences": 2, "length_penalty": 2.0}
    stopped, out = paths(lattice, early_stopping=True, **settings)
    assert stopped == [[A, END], [END]]
    assert int(out.steps[0]) == 2
    assert paths(lattice, early_stopping="never", **settings)[0][0] == [A, B, C, D, END]


def test_repetition_penalty_leaves_the_loop():
    loop = {START: {A: 0.9, B: 0.1}, A: {A: 0.8, B: 0.15, END: 0.05}, B: {A: 0.7, END: 0.3}, END: {END: 1.0}}
    assert paths(loop, max_length=5)[0] == [[A, A, A, A]]
    # After start, A: A's score is 5 * log .8 = -1.1 > log .15 = -1.9; after A, A it is the same: the penalty is not
    # cumulative. 10 * log .8 = -2.2 loses, and so does 10 * log .7 after B.
    assert paths(loop, max_length=5, repetition_penalty=5.0)[0] == [[A, A, A, A]]
    assert paths(loop, max_length=5, repetition_penalty=10.0)[0] == [[A, B, END]]


def test_no_repeat_ngram_forbids_the_second_occurrence():
    loop = {START: {A: 1.0}, A: {B: 0.9, C: 0.1}, B: {A: 0.9, END: 0.1}, C: {END: 1.0}, END: {END: 1.0}}
    assert paths(loop, max_length=7)[0] == [[A, B, A, B, A, B]]
    assert paths(loop, max_length=7, no_repeat_ngram_size=2)[0] == [[A, B, A, C, END]]
    assert paths(loop, max_length=7, no_repeat_ngram_size=1)[0] == [[A, B, END]]


def test_greedily_any_end_token_ends_a_sentence():
    chosen = spec(max_length=6).replace(eos_token_id=(END, A))
    out = generate(MODEL, first_order(LATTICE, 7), sentences(1), chosen)
    assert (out.sequences[0].tolist(), int(out.lengths[0])) == ([START, A, PAD, PAD, PAD, PAD], 2)


def test_with_a_negative_penalty_never_looks_at_the_next_token_not_at_the_longest():
    """Scores are multiplied by the length: 3 * log .35 may still beat the worse finished one, 3 * log .15; at the
    maximum of eight tokens it could not.
    """
    lattice = {START: {A: 0.5, B: 0.3, 8: 0.2}, A: {C: 1.0}, B: {END: 0.9, D: 0.1}, C: {END: 0.3, 7: 0.7}, D: {D: 1.0},
               7: {END: 1.0}, END: {END: 1.0}}  # fmt: skip
    settings = {"num_beams": 2, "num_return_sequences": 2, "length_penalty": -1.0, "early_stopping": "never"}
    found, out = paths(lattice, 9, max_length=9, **settings)
    assert found == [[B, END], [A, C, 7, END]]
    np.testing.assert_allclose(out.scores, [2 * np.log(0.27), 4 * np.log(0.35)], rtol=1e-5)


def test_with_two_end_tokens_there_are_enough_candidates_that_do_not_end():
    """The best four continuations of both beams end, and the best hypothesis goes on with the fifth."""
    ends = {END: 0.4, D: 0.35, C: 0.25}
    lattice = {START: {A: 0.51, B: 0.49}, A: ends, B: ends, C: {7: 1.0}, 7: {8: 1.0}, 8: {END: 1.0}}
    settings = {"max_length": 8, "num_beams": 2, "length_penalty": 2.0, "early_stopping": "never"}
    out = generate(MODEL, first_order(lattice, 9), sentences(1), spec(**settings).replace(eos_token_id=(END, D)))
    assert np.asarray(out.sequences)[0, : int(out.lengths[0])].tolist() == [START, A, C, 7, 8, END]


def test_a_sentence_that_is_done_takes_nothing_more_while_a_neighbour_goes_on():
    """After two steps log .06 / 2**2 is below the worse finished one, log .36 / 2**2; log .06 / 6**2 would win."""
    done = {START: {A: 0.6, B: 0.4}, A: {END: 0.9, C: 0.1}, B: {END: 0.9, C: 0.1},
            C: {D: 1.0}, D: {7: 1.0}, 7: {8: 1.0}, 8: {END: 1.0}}  # fmt: skip
    goes_on = {START: {A: 1.0}, A: {A: 0.9, B: 0.1}, B: {A: 1.0}}
    tables = [first_order(edges, 9)["table"] for edges in (done, goes_on)]
    chosen = spec(max_length=9, num_beams=2, length_penalty=2.0)
    out = generate(MODEL, {"table": jnp.concatenate(tables)}, sentences(2), chosen)
    assert out.sequences[0, : int(out.lengths[0])].tolist() == [START, A, END]
    assert int(out.lengths[1]) == 9
    # "never" looks how long it may get, and waits for it.
    found, _ = paths(done, 9, max_length=9, num_beams=2, length_penalty=2.0, early_stopping="never")
    assert found == [[A, C, D, 7, 8, END]]


SETTINGS = [
    {},
    {"length_penalty": 0.0},
    {"length_penalty": 2.0, "early_stopping": "never"},
    {"length_penalty": -1.0, "early_stopping": True},
    {"repetition_penalty": 5.0, "no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3, "min_length": 6, "forced_eos_token_id": END},
    {"forced_bos_token_id": 5, "begin_suppress_tokens": (3, 4), "suppress_tokens": (6,)},
    {"early_stopping": True, "repetition_penalty": 1.3},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(s) or "plain")
def test_agrees_with_the_slow_reference_on_random_markov_models(settings):
    """25 models for each of 8 settings; the top three hypotheses and their scores."""
    batch, vocabulary, beams = 25, 14, 3
    params = random_tables(np.random.default_rng(len(repr(settings))), batch, vocabulary)
    chosen = spec(max_length=9, num_beams=beams, num_return_sequences=beams, **settings)
    out = jax.tree.map(np.asarray, generate(MODEL, params, sentences(batch), chosen))
    for b, table in enumerate(np.asarray(params["table"], np.float64)):
        step = lambda tokens, table=table: table[tokens[-2] if len(tokens) > 1 else 0, tokens[-1]]  # noqa: E731
        expected = slow_beam_search(step, chosen)
        for k, (score, tokens) in enumerate(expected):
            row = b * beams + k
            assert out.sequences[row, : out.lengths[row]].tolist() == tokens
            assert (out.sequences[row, out.lengths[row] :] == PAD).all()
            np.testing.assert_allclose(out.scores[row], score, rtol=1e-4, atol=1e-4)


@pytest.mark.quick(
    "plain",
    "length_penalty-early_stopping0",
    "no_repeat_ngram_size-min_length-forced_eos_token_id",
    "forced_bos_token_id-begin_suppress_tokens-suppress_tokens",
)
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(s) or "plain")
def test_a_prompt_that_is_read_as_the_start_changes_neither_texts_nor_scores(settings):
    """Two given tokens, which count for the lengths of the settings and not for the penalty of length. A token that is
    forced first is not forced behind them, as in transformers.
    """
    batch, vocabulary, one, two = 12, 14, 12, 13  # neither is written again, nor is the start
    table = np.array(random_tables(np.random.default_rng(7), batch, vocabulary)["table"])
    table[..., [START, one, two]] = -1e9
    table[:, one, two], table[:, two] = table[:, 0, 0], table[:, 0]
    params, chosen = {"table": jnp.asarray(table)}, spec(max_length=9, num_beams=3, num_return_sequences=3, **settings)
    longer = {"max_length": 11, "min_length": chosen.min_length + 2 if chosen.min_length else 0}
    expected = generate(MODEL, params, sentences(batch), chosen.replace(forced_bos_token_id=None))
    found = generate(MODEL, params, sentences(batch), chosen.replace(decoder_prompt=(one, two), **longer))
    for name in ("sequences", "lengths"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)


def test_scores_are_of_what_the_processors_left_if_they_are_normalized_again():
    """A is forbidden, so B is certain, and after it D, as END may not come before the fifth token."""
    settings = {"max_length": 6, "num_beams": 2, "suppress_tokens": (A,), "min_length": 3, "length_penalty": 0.0}
    for again, expected in ((False, np.log(0.4 * 0.9)), (True, 0.0)):
        found, out = paths(LATTICE, renormalize_logits=again, **settings)
        assert found == [[B, D, END]]
        np.testing.assert_allclose(out.scores, [expected], atol=1e-5)


def test_loop_ends_when_every_sentence_is_done():
    _, out = paths(LATTICE, max_length=50, num_beams=2)
    assert int(out.steps[0]) <= 4


@pytest.mark.parametrize(
    "settings", [{"length_penalty": 0.0}, {"early_stopping": True, "do_sample": True}], ids="-".join
)
def test_going_on_with_half_of_the_batch_changes_no_result(settings):
    params = random_tables(np.random.default_rng(3), 11, 9, spread=4.0)
    chosen = spec(max_length=20, num_beams=3, num_return_sequences=2, **settings)
    key = jax.random.key(0)
    whole = generate(MODEL, params, sentences(11), chosen, key=key)
    for compactions in (1, 9):
        halved = generate(MODEL, params, sentences(11), chosen, key=key, compactions=compactions)
        for name in ("sequences", "lengths", "scores"):
            np.testing.assert_array_equal(getattr(halved, name), getattr(whole, name))
        assert halved.steps.max() == whole.steps.max()
        assert halved.steps.sum() < whole.steps.sum()
        assert (halved.steps >= halved.lengths - 1).all()


@pytest.mark.quick(
    "repetition_penalty-no_repeat_ngram_size-2", "do_sample-0", "no_repeat_ngram_size-min_length-forced_eos_token_id-0"
)
@pytest.mark.parametrize("compactions", [0, 2])
@pytest.mark.parametrize("settings", [*SETTINGS, {"do_sample": True}], ids=lambda s: "-".join(s) or "plain")
def test_asking_ahead_as_on_a_tpu_changes_no_result(monkeypatch, settings, compactions):
    """Also with what a TPU does in place of a scatter."""
    params = random_tables(np.random.default_rng(4), 11, 14, spread=3.0)
    chosen = spec(max_length=9, num_beams=3, num_return_sequences=3, **settings)
    key, taken = jax.random.key(0), []

    def as_a_tpu(*args, tpu, default=None, **others):
        taken.append(tpu)
        return tpu(*args)

    usual = generate(MODEL, params, sentences(11), chosen, key=key)
    monkeypatch.setattr(jax.lax, "platform_dependent", as_a_tpu)
    ahead = jax.jit(lambda params: search(MODEL, params, sentences(11), chosen, key, compactions))(params)
    assert len(taken) > 1 if {"repetition_penalty", "no_repeat_ngram_size"} & set(settings) else len(taken) == 1
    for name in ("sequences", "lengths", "scores"):
        np.testing.assert_array_equal(getattr(ahead, name), getattr(usual, name))


@pytest.mark.parametrize("vocabulary", [4000, 50 * cpu.BLOCK, 50 * cpu.BLOCK + 1, 10_007])
def test_the_top_by_blocks_is_the_top(vocabulary):
    """Also where scores are equal, or impossible, and where the last scores fill no block."""
    rng = np.random.default_rng(vocabulary)
    scores = np.round(rng.normal(size=(7, vocabulary)), 1).astype(np.float32)
    scores[1] = -np.inf
    scores[2, 3:] = -np.inf
    scores[3] = 0.0
    scores[4, -1], scores[5, : cpu.BLOCK] = 9.0, 8.0
    for count in (1, 10, 31):
        found = jax.jit(partial(cpu.top_k, count=count))(jnp.asarray(scores))
        for mine, expected in zip(found, jax.lax.top_k(jnp.asarray(scores), count), strict=True):
            np.testing.assert_array_equal(mine, expected)
    assert ("cond" in str(jax.make_jaxpr(partial(cpu.top_k, count=10))(scores))) == (vocabulary > 4096)


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_the_log_softmax_of_a_cpu(scale):
    logits = scale * np.random.default_rng(0).standard_normal((6, 5000)).astype(np.float32)
    logits[1, ::2], logits[2, :-1] = -np.inf, -np.inf
    of_rows = jax.jit(lambda x: cpu.log_softmax(x, x.max(axis=1, keepdims=True)))
    found, expected = of_rows(logits), scipy.special.log_softmax(logits.astype(np.float64), axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=4e-6)
    logits[3, 0] = np.nan
    assert np.isnan(of_rows(logits)).all(axis=1).tolist() == [False, False, False, True, False, False]
    assert "dot_general" in of_rows.lower(logits).as_text()
