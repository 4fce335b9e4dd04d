"""Our aggregation of WER and CER against jiwer."""

import jiwer
import numpy as np
import pytest
from test_bleu import random_corpus

from eeg2text_jax.instrument.metrics.metric import character_error_rate, word_error_rate

METRICS = [(word_error_rate(), jiwer.process_words), (character_error_rate(), jiwer.process_characters)]


@pytest.mark.parametrize(("metric", "process"), METRICS, ids=["wer", "cer"])
@pytest.mark.parametrize("seed", range(3))
def test_jiwer_agrees(seed, metric, process):
    predictions, references = random_corpus(seed)
    theirs = process(references, predictions)
    length = theirs.hits + theirs.substitutions + theirs.deletions
    ours = metric.score(predictions, references)
    assert ours[metric.name] == pytest.approx(100 * getattr(theirs, metric.name), abs=1e-9)
    for edit in ("substitutions", "deletions", "insertions"):
        assert ours[f"{metric.name}-{edit}"] == pytest.approx(100 * getattr(theirs, edit) / length, abs=1e-9)


def test_empty_texts_have_a_meaning():
    wer = word_error_rate()
    assert wer.score(["", "a b"], ["a b", "a b"])["wer"] == 50.0
    assert wer.score(["x y", "a b"], ["", "a b"])["wer-insertions"] == 100.0
    assert np.isnan(wer.score(["x"], [""])["wer"])
