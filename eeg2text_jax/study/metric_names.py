"""Names of metrics, by what they need, and the figures that an audit can be decided by; importing loads no library."""

from typing import NamedTuple

WORDS = ("bleu", "rouge", "wer", "cer")  # metrics that compare words
ENCODED = ("bertscore", "similarity")  # that need an encoder, and with it JAX
JUDGED = ("lattescore",)  # that need a judge, see `judge.lattescore`
MEANING = (*ENCODED, *JUDGED)


class Named(NamedTuple):
    """What can be judged by: its label in sentences, the metric and figure that it is, and its default margin."""

    label: str
    metric: str
    figure: str
    margin: float  # points below which a difference does not matter


class Ranked(NamedTuple):
    """What the audit of retrieval can be decided by: its label and default margin in points."""

    label: str
    margin: float


# The best published gain above chance is 9.2 points of top-5 (docs/retrieval.md): a third of it is not a small one.
WHICH_SENTENCE = {
    "top-1": Ranked("top-1", 2.0),
    "top-5": Ranked("top-5", 3.0),
    "rank": Ranked("mean rank (percentile)", 3.0),
}
# A margin is what the same reference words are worth that raise BLEU-1 by a point: 1.28 of BERTScore, 1.52 of
# similarity (tools/calibrate_endpoints.py, released T5 outputs with MiniLM; other encoders may differ). Of LATTEScore
# it depends on the judge, and 1 is a convention.
BLEU_1 = "bleu-1"
ENDPOINTS = {
    BLEU_1: Named("BLEU-1", "bleu", "word_bleu-1", 1.0),
    "bertscore-f": Named("BERTScore F", "bertscore", "bertscore-f", 1.3),
    "similarity": Named("similarity", "similarity", "similarity", 1.5),
    "lattescore-mean": Named("LATTEScore (mean)", "lattescore", "lattescore-mean", 1.0),
}
