"""Names of metrics grouped by their requirements, and the endpoints of an audit. Importing it loads no library."""

from typing import NamedTuple

WORDS = ("bleu", "rouge", "wer", "cer")  # metrics that compare words
ENCODED = ("bertscore", "similarity")  # need a text encoder, and with it JAX
JUDGED = ("lattescore",)  # need a judge, see `judge.lattescore`
MEANING = (*ENCODED, *JUDGED)


class Named(NamedTuple):
    """An endpoint of the audit: its label, its metric and figure, and its default equivalence margin."""

    label: str
    metric: str
    figure: str
    margin: float  # smallest difference in points that matters


class Ranked(NamedTuple):
    """An endpoint of the retrieval audit: its label and default margin in points."""

    label: str
    margin: float


# The best published gain above chance is 9.2 points of top-5 (docs/retrieval.md); a third of it still matters.
WHICH_SENTENCE = {
    "top-1": Ranked("top-1", 2.0),
    "top-5": Ranked("top-5", 3.0),
    "rank": Ranked("mean rank (percentile)", 3.0),
}
# Margins are matched to one point of BLEU-1: the reference words that raise BLEU-1 by a point raise BERTScore by 1.28
# and similarity by 1.52 (tools/calibrations/calibrate_endpoints.py, released T5 outputs with MiniLM; other encoders may
# differ).
# For LATTEScore the match depends on the judge; 1 is a convention.
BLEU_1 = "bleu-1"
ENDPOINTS = {
    BLEU_1: Named("BLEU-1", "bleu", "word_bleu-1", 1.0),
    "bertscore-f": Named("BERTScore F", "bertscore", "bertscore-f", 1.3),
    "similarity": Named("similarity", "similarity", "similarity", 1.5),
    "lattescore-mean": Named("LATTEScore (mean)", "lattescore", "lattescore-mean", 1.0),
}
