"""Which metrics a score consists of: our standard set, or the paper's conventions.

`standard`: BLEU on words and on the model's tokens, ROUGE of rouge-score, WER and CER of jiwer.
`paper`: what Tables 2-3 of the paper print: BLEU on subword tokens as nltk's `corpus_bleu` computes it, ROUGE with the
formula of the PyPI package `rouge`, WER.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from eeg2text_jax.errors import UserError, did_you_mean
from eeg2text_jax.metrics.bleu import Bleu, token_bleu, word_bleu
from eeg2text_jax.metrics.error_rates import character_error_rate, word_error_rate
from eeg2text_jax.metrics.rouge import paper_rouge, rouge
from eeg2text_jax.metrics.statistics import Metric

if TYPE_CHECKING:  # `eeg2text score` without --tokenizer does not wait for transformers
    from transformers import PreTrainedTokenizerBase

PROFILES = ("standard", "paper")
WORDS = ("bleu", "rouge", "wer", "cer")  # metrics that compare words
MEANING = ("bertscore", "similarity")  # metrics that need an encoder, and with it JAX

PAPER_NOTE = (
    "The columns P and R of the paper's Tables 2-3 are exchanged: what the paper prints under P is the recall, and "
    "stands here under R."
)


def text_metrics(profile: str, chosen: Sequence[str] | None = None) -> list[Metric]:
    """Metrics of a profile that are computed on text; of these the `chosen` ones. Raises UserError for unknown ones."""
    if profile not in PROFILES:
        raise UserError(f"there is no profile {profile!r}; the profiles are {', '.join(PROFILES)}.")
    made = {"wer": word_error_rate, "cer": character_error_rate, "bleu": word_bleu, "rouge": rouge}
    if profile == "paper":
        made["rouge"] = paper_rouge
    if chosen is None:
        chosen = WORDS if profile == "standard" else ("rouge", "wer")
    return [made[name]() for name in chosen if name in made]


def parse_metrics(text: str) -> tuple[str, ...]:
    """Names of metrics with commas between. Raises UserError for an unknown one, or none."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in (*WORDS, *MEANING):
            raise UserError(f"--metrics={text}: there is no metric {name!r}; {did_you_mean(name, (*WORDS, *MEANING))}")
    if not names:
        raise UserError(f"--metrics={text}: names no metric; there are {', '.join((*WORDS, *MEANING))}.")
    return names


def id_bleu(profile: str, token_source: str) -> Bleu:
    """BLEU on token ids that the model wrote, given as text of ids with spaces between."""
    return token_bleu(str.split, f"model-ids[{token_source}]", short_counts_one=profile == "paper")


def subword_bleu(profile: str, tokenizer: "PreTrainedTokenizerBase") -> Bleu:
    """BLEU on the tokens that a tokenizer makes of a string; they may differ from those that the model wrote."""
    name = f"retokenized[{describe_tokenizer(tokenizer)}]"
    return token_bleu(tokenizer.tokenize, name, short_counts_one=profile == "paper")


def describe_tokenizer(tokenizer: "PreTrainedTokenizerBase") -> str:
    """Class, vocabulary size and hash of a tokenizer's definition.

    Truncation and padding are left out: they are settings of the last call, not of the tokenizer.
    """
    definition = json.loads(tokenizer.backend_tokenizer.to_str()) | {"truncation": None, "padding": None}
    digest = hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()[:12]
    return f"{type(tokenizer).__name__},{len(tokenizer)},sha256:{digest}"
