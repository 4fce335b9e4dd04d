"""What case and punctuation cost: WER and BLEU-1 of the texts as they are, and in lower case without punctuation."""

import re
from collections.abc import Sequence

from eeg2text_jax.metrics.bleu import word_bleu
from eeg2text_jax.metrics.error_rates import word_error_rate

POINTS = 5.0  # a smaller change is no other result
ROWS = 20_000  # of more, as many are taken at equal distances


def normalized(text: str) -> str:
    """A text in lower case, apostrophes within words aside without punctuation."""
    return " ".join(re.findall(r"\w+(?:'\w+)*", text.lower().replace("’", "'")))


def what_normalizing_changes(predictions: Sequence[str], references: Sequence[str]) -> str:
    """A sentence where WER or BLEU-1 changes by more than `POINTS`; empty where neither does, or is undefined."""
    step = -(-len(predictions) // ROWS) or 1
    texts = [list(side[::step]) for side in (predictions, references)]
    plain = [[normalized(text) for text in side] for side in texts]
    found = []
    for name, metric in (("WER", word_error_rate()), ("BLEU-1", word_bleu())):
        before, after = (float(metric.corpus(metric.statistics(*side).sum(0))[0]) for side in (texts, plain))
        if abs(before - after) > POINTS:
            found.append(f"{name} from {before:.2f} to {after:.2f}")
    if not found:
        return ""
    return (
        f"case and punctuation count: without them {' and '.join(found)}; write predictions and references alike, or "
        "say which of the two is reported"
    )
