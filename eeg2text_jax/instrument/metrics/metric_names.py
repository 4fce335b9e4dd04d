"""Names of metrics by the models that they need, and of endpoints of an audit; importing loads no library."""

from typing import NamedTuple

WORDS = ("bleu", "rouge", "wer", "cer")  # metrics that compare words
ENCODED = ("bertscore", "similarity")  # metrics that need a text encoder and JAX
JUDGED = ("lattescore",)  # metrics that need a judge model, see the wing `judge`
MEANING = (*ENCODED, *JUDGED)


class Named(NamedTuple):
    """An endpoint of the audit."""

    label: str
    metric: str  # that needs a model; "": none
    figure: str  # name of one of the metric's scores
    margin: float  # default of the smallest difference that matters, in points


# The margin of top-5 is a third of the best published gain above chance, 9.2 points (docs/retrieval.md).
WHICH_SENTENCE = {
    "top-1": Named("top-1", "", "top-1", 2.0),
    "top-5": Named("top-5", "", "top-5", 3.0),
    "rank": Named("mean rank (percentile)", "", "rank", 3.0),
}
# The margins of BERTScore and similarity match a point of `words`: if as many words of the references are put into
# outputs as raise it by a point, BERTScore rises by 0.81 and similarity by 0.96 (released T5 outputs with MiniLM; other
# encoders may differ; tools/calibrations/calibrate_endpoints.py). LATTEScore's margin of 1 is a convention.
WORDS_ENDPOINT = "words"
ENDPOINTS = {
    WORDS_ENDPOINT: Named("words", "", "", 1.0),
    "rouge-1": Named("ROUGE-1 F", "", "", 1.0),
    "bertscore-f": Named("BERTScore F", "bertscore", "bertscore-f", 0.8),
    "similarity": Named("similarity", "similarity", "similarity", 1.0),
    "lattescore-mean": Named("LATTEScore (mean)", "lattescore", "lattescore-mean", 1.0),
}
