"""Our aggregation of ROUGE against rouge-score and against the PyPI package rouge."""

import numpy as np
import pytest
from rouge import Rouge as OracleRouge
from rouge_score.rouge_scorer import RougeScorer
from test_bleu import random_corpus

from eeg2text_jax.instrument.metrics.metric import MetricError, Rouge


@pytest.mark.parametrize("seed", range(4))
def test_rouge_score_agrees(seed):
    predictions, references = random_corpus(seed)
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"])
    scores = [scorer.score(r, p) for p, r in zip(predictions, references, strict=True)]
    expected = {
        f"rouge-{kind.lower()}-{figure[0]}": 100 * np.mean([getattr(s[f"rouge{kind}"], figure) for s in scores])
        for kind in "12L"
        for figure in ("precision", "recall", "fmeasure")
    }
    assert Rouge().score(predictions, references) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_package_behind_the_paper_agrees(seed):
    predictions, references = random_corpus(seed, shortest=1)
    keep = [i for i, p in enumerate(predictions) if p.replace(".", "").strip() and references[i].replace(".", "")]
    predictions, references = ([texts[i] + " x. ." for i in keep] for texts in (predictions, references))
    predictions[0] = predictions[0].replace(" ", " . ") + ". . a b. c"  # several sentences, a blank one among them
    scores = OracleRouge().get_scores(predictions, references, avg=True)
    expected = {f"{kind}-{figure}": 100 * value for kind, row in scores.items() for figure, value in row.items()}
    assert Rouge(paper=True).score(predictions, references) == pytest.approx(expected, abs=1e-9)


def test_the_papers_worked_example():
    """Recall 6/6 and precision 6/7 of one word too many; F 0.92."""
    found = Rouge().score(["I really loved reading the hunger games"], ["I loved reading the hunger games"])
    assert found["rouge-1-r"] == found["rouge-l-r"] == 100
    assert found["rouge-1-p"] == found["rouge-l-p"] == pytest.approx(600 / 7)
    assert found["rouge-1-f"] == pytest.approx(92, abs=0.5)


def test_an_empty_prediction_counts_as_nothing_found():
    assert Rouge().score(["", "a b"], ["a b", "a b"])["rouge-1-f"] == 50.0
    assert Rouge(paper=True).score(["...", "a b"], ["a b", "a b"])["rouge-1-r"] == 50.0


def test_text_that_rouge_score_cannot_see_is_an_error_not_a_zero():
    with pytest.raises(MetricError, match="reference of row 2") as raised:
        Rouge().statistics(["a", "b"], ["a", "北京 欢迎 你"])
    assert (raised.value.side, raised.value.index) == ("reference", 1)
    assert Rouge().score(["北京"], ["a"])["rouge-1-f"] == 0.0
