"""Other endpoints than BLEU-1: the same verdict machinery on figures that may be negative, with their own margins."""

import math

import numpy as np
import pytest
from rows import changed, simulated_rows

from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.endpoints import Endpoint, endpoint_of, named, primary_endpoint
from eeg2text_jax.auditing.verdict import Verdict
from eeg2text_jax.errors import UserError
from eeg2text_jax.metrics.metric import Metric, MetricError
from eeg2text_jax.study.metric_names import ENDPOINTS


class WordVectors(Metric):
    """Cosine of sums of random word vectors, below 0 as often as above where nothing is shared: a similarity."""

    name, columns, statistic_names = "similarity", ("similarity",), ("sum_cosine", "samples")
    signature, least = "model:random|cosine", -math.inf

    def __init__(self):
        self._vectors, self._rng = {}, np.random.default_rng(0)

    def _of(self, texts):
        for word in sorted({word for text in texts for word in text.split()} - self._vectors.keys()):
            self._vectors[word] = self._rng.normal(size=24)
        sums = np.stack([sum((self._vectors[word] for word in text.split()), np.zeros(24)) for text in texts])
        return sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)

    def statistics(self, predictions, references):
        cosines = np.einsum("nd,nd->n", self._of(predictions), self._of(references))
        return np.stack([cosines, np.ones_like(cosines)], -1)

    def pairwise(self, predictions, references):
        cosines = self._of(predictions) @ self._of(references).T
        return np.stack([cosines, np.ones_like(cosines)], -1)

    def corpus(self, summed):
        return 100 * summed[..., :1] / summed[..., 1:]

    def notes(self):
        return ["vectors are random"]


def judged(information, **options):
    eeg, noise = simulated_rows(3, information=information, sentences=60, subjects=4)
    return audit(eeg, {"noise": noise}, resamples=300, **options)


def test_planted_words_are_found_by_the_endpoint_and_named_in_the_sentence():
    result = judged(0.18, endpoint=endpoint_of("similarity", WordVectors()), proof="the test has drawn all of it")
    assert result.verdict is Verdict.USES_EEG
    assert ", similarity was " in result.sentence
    assert (result.metric, result.margin, result.signature) == ("similarity", 1.5, "model:random|cosine")
    assert "vectors are random" in result.notes


def test_nothing_planted_is_not_found_and_the_margin_is_the_endpoints():
    result = judged(0.0, endpoint=endpoint_of("similarity", WordVectors()), margin=30.0)
    assert result.verdict is Verdict.EQUIVALENT
    assert "within ±30" in result.sentence


def test_figures_below_zero_are_left_as_they_are():
    endpoint = endpoint_of("similarity", WordVectors())
    assert endpoint.score(np.array([-2.0, 4.0])) == -50
    assert primary_endpoint().score(np.array([-1.0] * 10)) != primary_endpoint().score(np.array([1.0] * 10))


class Broken(WordVectors):
    """A metric that cannot score one text."""

    def pairwise(self, predictions, references):
        raise MetricError("similarity", "prediction", 0, "it is too long")


def test_a_secondary_metric_that_fails_is_a_note():
    found = judged(0.0, secondary=[endpoint_of("similarity", Broken())])
    assert [figure.label for figure in found.comparisons[0].secondary] == ["BLEU-4", "WER", "ROUGE-1 F", "ROUGE-L F"]
    assert any(note.startswith("similarity not computed: ") and "it is too long" in note for note in found.notes)


def test_secondary_figures_are_adjusted_together_with_words_among_them():
    result = judged(0.0, endpoint=endpoint_of("similarity", WordVectors()))
    (comparison,) = result.comparisons
    labels = [figure.label for figure in comparison.secondary]
    assert labels == ["BLEU-1", "BLEU-4", "WER", "ROUGE-1 F", "ROUGE-L F"]
    other = judged(0.0, secondary=[endpoint_of("similarity", WordVectors())])
    assert [figure.label for figure in other.comparisons[0].secondary] == [*labels[1:], "similarity"]
    for found in (result, other):
        figures = found.comparisons[0].secondary
        smallest = min(figure.p for figure in figures)
        assert min(figure.p_holm for figure in figures) == pytest.approx(min(1, smallest * len(figures)))


def test_warnings_speak_of_words_whatever_decides():
    """What only a target explains is seen in the words though the similarity decides."""
    eeg, noise = simulated_rows(3, sentences=60, subjects=4)
    eeg = changed(eeg, prediction=lambda r: r.reference)
    for endpoint in (None, endpoint_of("similarity", WordVectors())):
        result = audit(eeg, {"noise": noise}, resamples=300, endpoint=endpoint)
        assert {"target_copies", "too_good"} <= {flag.code for flag in result.flags}
        assert result.verdict is Verdict.NOT_JUDGEABLE


def test_bleu_1_is_the_default_and_as_before():
    assert judged(0.1).to_json() == judged(0.1, endpoint=primary_endpoint(), margin=1.0).to_json()


def test_margins_and_unknown_names():
    margins = {"bleu-1": 1.0, "bertscore-f": 1.3, "similarity": 1.5, "lattescore-mean": 1.0}
    assert {name: found.margin for name, found in ENDPOINTS.items()} == margins
    with pytest.raises(UserError, match="did you mean 'similarity'"):
        named("similarty")
    assert isinstance(endpoint_of("similarity", WordVectors()), Endpoint)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--endpoint=bleu-2"], "--endpoint=bleu-2: there is no such endpoint"),
        (["--endpoint=similarity"], "similarity needs --encoder=NAME"),
        (["--endpoint=lattescore-mean"], "lattescore needs --judge=DIR/judge"),
        (["--encoder=minilm"], "--encoder is for bertscore and similarity"),
        (["--secondary=bleu-1"], "'bleu-1' is given twice"),
        (["--margin=-1"], "expected a number above 0, in points of the endpoint"),
        (["--endpoint=lattescore-mean", "--judge=nowhere"], "there is no such file"),
    ],
)
def test_flags_are_refused_before_a_file_is_read(flags, message, tmp_path, refused):
    assert message in refused(["audit", f"--eeg={tmp_path / 'none'}", *flags])
