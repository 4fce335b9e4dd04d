"""Convert sentences to token ids and back, with a checkpoint's tokenizer or one trained on the sentences."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import ByteLevelBPETokenizer
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.stores.copying import at_hand

# Vocabulary files of the library tokenizers, of BART, of BERT, and of SentencePiece.
VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", "*.model", "*.spm")
SPECIAL_TOKENS = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}


def load_tokenizer(folder: str | Path, **options: Any) -> PreTrainedTokenizerBase:
    """Read a tokenizer from a Hugging Face folder or the Hub, with options of transformers.

    Raises:
      UserError: there is no tokenizer in `folder`, or it has no padding or end token.
    """
    folder = at_hand(folder)
    if Path(folder).is_dir() and not has_vocabulary(Path(folder)):
        raise UserError(
            f"{folder}: holds no tokenizer (expected tokenizer.json, or the vocabulary of one); "
            "name a folder with one in config.text.tokenizer."
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), **options)
    except Exception as error:  # transformers raises nearly anything here
        raise UserError(
            f"{folder}: no tokenizer can be read there ({first_line(error)}); copy the folder again, or name another "
            "in config.text.tokenizer."
        ) from error
    if tokenizer.eos_token_id is None and tokenizer.sep_token_id is None:
        raise UserError(f"{folder}: the tokenizer has no end token; set eos_token in its tokenizer_config.json.")
    return tokenizer


def has_vocabulary(folder: Path) -> bool:
    """Return whether a folder holds a vocabulary; without one, transformers invents a tokenizer of five tokens."""
    return any(found for pattern in VOCABULARIES for found in folder.glob(pattern))


def train_tokenizer(sentences: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Train a byte-level byte-pair tokenizer that frames a sentence as BART does: `<s> ... </s>`."""
    specials = list(SPECIAL_TOKENS.values())
    trainer = ByteLevelBPETokenizer(add_prefix_space=True)
    trainer.train_from_iterator(sentences, vocab_size, min_frequency=2, special_tokens=specials, show_progress=False)
    trainer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[(token, trainer.token_to_id(token)) for token in ("<s>", "</s>")]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=trainer._tokenizer, clean_up_tokenization_spaces=False, **SPECIAL_TOKENS
    )


def longer_than(
    tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str], max_tokens: int, alone: bool = False
) -> np.ndarray:
    """Return which sentences `encode_targets` truncates, bool `[N]`."""
    distinct = list(dict.fromkeys(sentences))
    encoded = tokenizer(distinct, truncation=False, verbose=False, add_special_tokens=not alone)["input_ids"]
    cut = {text for text, ids in zip(distinct, encoded, strict=True) if len(ids) + alone > max_tokens}
    return np.array([text in cut for text in sentences], bool)


def encode_targets(
    tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str], max_tokens: int, alone: bool = False
) -> list[np.ndarray]:
    """Return the token ids of each sentence with special tokens, int32, truncated to `max_tokens` before the end token.

    Args:
      alone: encode tokens and end token only, for a decoder-only model, whose prompt holds the begin token.

    Raises:
      UserError: the special tokens alone are as many as `max_tokens`.
    """
    if alone:
        encoded = tokenizer(list(sentences), truncation=False, verbose=False, add_special_tokens=False)["input_ids"]
        end = tokenizer.eos_token_id
        return [np.array([*ids[: max_tokens - 1], end], np.int32) for ids in encoded]
    own = tokenizer.num_special_tokens_to_add(pair=False)
    if max_tokens <= own:
        raise UserError(
            f"text.max_tokens is {max_tokens}; expected at least {own + 1}, as the tokenizer adds {own} tokens to each "
            "sentence."
        )
    encoded = tokenizer(list(sentences), truncation=True, max_length=max_tokens)["input_ids"]
    return [np.array(ids, np.int32) for ids in encoded]


def decode_tokens(tokenizer: PreTrainedTokenizerBase, sequences: Iterable[Sequence[int]]) -> list[str]:
    """Return strings of token ids without special tokens or outer white space."""
    texts = tokenizer.batch_decode([list(map(int, ids)) for ids in sequences], skip_special_tokens=True)
    return [text.strip() for text in texts]
