"""Teacher-forced argmax, likelihood of the reference, and the authors' cut."""

import jax.numpy as jnp
import numpy as np
from scipy.special import log_softmax
from toy_models import MarkovModel, random_tables, sentences

from eeg2text_jax.decoding.teacher_forced import TeacherForced, cut_at_end, teacher_forced
from eeg2text_jax.runs.cells import _forced_tokens

MODEL = MarkovModel()
LABELS = jnp.asarray([[5, 3, 7, 2, 1, 1], [4, 2, 1, 1, 1, 1], [6, 6, 3, 5, 7, 2]], jnp.int32)


def test_likelihood_of_the_reference_token_by_token():
    params = random_tables(np.random.default_rng(0), 3, 9)
    out = teacher_forced(MODEL, params, sentences(3), LABELS, with_logits=True)
    table = np.asarray(params["table"], np.float64)
    for b, row in enumerate(np.asarray(LABELS)):
        history, total = [0, 0], 0.0
        for t, token in enumerate(row):
            logits = table[b, history[-2], history[-1]]
            assert out.tokens[b, t] == np.argmax(logits)
            np.testing.assert_allclose(out.logits[b, t], logits, rtol=1e-6)
            expected = log_softmax(logits)[token] if token != MODEL.pad_token else 0.0
            np.testing.assert_allclose(out.log_probs[b, t], expected, atol=1e-5)
            total -= expected
            history.append(int(token))
        np.testing.assert_allclose(out.nll[b], total, rtol=1e-5)
    assert out.n_tokens.tolist() == [4, 2, 6]
    assert teacher_forced(MODEL, params, sentences(3), LABELS).logits is None


def test_cut_is_at_the_first_predicted_end_wherever_the_reference_ends():
    row = np.array([0, 3, 4, 5, 1, 6, 2, 6, 2])
    assert cut_at_end(row, [2]) == [0, 3, 4, 5, 1, 6]
    assert cut_at_end(row[:5], [2]) == [0, 3, 4, 5, 1]
    assert cut_at_end(np.array([2, 3]), [2]) == []


def test_each_row_is_cut_at_its_own_reference_and_not_a_token_later():
    tokens = np.array([[3, 4, 5, 6, 7], [3, 2, 5, 6, 7]], np.int32)
    found = TeacherForced(tokens, None, None, np.array([3, 4], np.int32), None)
    assert _forced_tokens(found, "reference", 2) == [[3, 4, 5], [3]]
    assert _forced_tokens(found, "authors", 2) == [[3, 4, 5, 6, 7], [3]]
