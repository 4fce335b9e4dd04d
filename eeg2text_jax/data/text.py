"""Tokenizers: load or train one, encode target sentences, decode token ids."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import ByteLevelBPETokenizer
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from eeg2text_jax.base.errors import UserError, first_line
from eeg2text_jax.base.files import parse_json
from eeg2text_jax.base.stores.buckets import at_hand

# Files of vocabularies: of the package `tokenizers`, BART, BERT, and SentencePiece (two).
VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", "*.model", "*.spm")
SPECIAL_TOKENS = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}


def load_tokenizer(folder: str | Path, **options: Any) -> PreTrainedTokenizerBase:
    """Load a tokenizer from a folder or the Hub without executing its code; raise UserError if that cannot be."""
    folder = at_hand(folder)
    if Path(folder).is_dir() and not has_vocabulary(Path(folder)):
        raise UserError(f"{folder}: holds no tokenizer (tokenizer.json or a vocabulary); set config.text.tokenizer.")
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False, **options)
    except Exception as error:  # transformers raises nearly anything here
        if needs_code(error):
            raise UserError(
                f"{folder}: its tokenizer needs Python code of the folder (auto_map in tokenizer_config.json), which "
                "is never executed; save the tokenizer with a class of transformers."
            ) from error
        _refuse_broken_json(Path(folder))
        raise UserError(
            f"{folder}: no tokenizer can be read there ({first_line(error)}); copy it again, or set "
            "config.text.tokenizer."
        ) from error
    if tokenizer.eos_token_id is None and tokenizer.sep_token_id is None:
        raise UserError(f"{folder}: the tokenizer has no end token; set eos_token in its tokenizer_config.json.")
    return tokenizer


def _refuse_broken_json(folder: Path) -> None:
    """Raise UserError on the first of a tokenizer's files that is no JSON."""
    for path in (folder / name for name in ("config.json", "tokenizer_config.json", "tokenizer.json", "vocab.json")):
        try:
            if path.is_file():
                parse_json(path.read_bytes())
        except ValueError as error:
            raise UserError(f"{path}: is not JSON ({first_line(error)[:120]}); copy the folder again.") from error


def needs_code(error: Exception) -> bool:
    """Return whether transformers would have to execute a folder's code."""
    return isinstance(error, ValueError) and "trust_remote_code" in str(error)


def has_vocabulary(folder: Path) -> bool:
    """Return whether a folder holds a vocabulary, without which transformers makes up a tokenizer of five tokens."""
    return any(file for pattern in VOCABULARIES for file in folder.glob(pattern))


def train_tokenizer(sentences: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer that frames sentences as BART's does: `<s> ... </s>`."""
    trainer = ByteLevelBPETokenizer(add_prefix_space=True)
    trainer.train_from_iterator(
        sentences, vocab_size, min_frequency=2, special_tokens=list(SPECIAL_TOKENS.values()), show_progress=False
    )
    trainer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[(token, trainer.token_to_id(token)) for token in ("<s>", "</s>")]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=trainer._tokenizer, clean_up_tokenization_spaces=False, **SPECIAL_TOKENS
    )


def longer_than(
    tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str], max_tokens: int, alone: bool = False
) -> np.ndarray:
    """Return whether `encode_targets` would truncate each sentence, bool `[N]`."""
    distinct = list(dict.fromkeys(sentences))
    encoded = tokenizer(distinct, truncation=False, verbose=False, add_special_tokens=not alone)["input_ids"]
    cut = {text for text, ids in zip(distinct, encoded, strict=True) if len(ids) + alone > max_tokens}
    return np.array([text in cut for text in sentences], bool)


def encode_targets(
    tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str], max_tokens: int, alone: bool = False
) -> list[np.ndarray]:
    """Return int32 token ids of each sentence, at most `max_tokens` with special tokens.

    With `alone` the only one is the end token, as the prompt of a decoder-only model holds the begin token.
    """
    if alone:
        encoded = tokenizer(list(sentences), truncation=False, verbose=False, add_special_tokens=False)["input_ids"]
        return [np.array([*ids[: max_tokens - 1], tokenizer.eos_token_id], np.int32) for ids in encoded]
    n_special = tokenizer.num_special_tokens_to_add(pair=False)
    if max_tokens <= n_special:
        raise UserError(
            f"text.max_tokens is {max_tokens}; expected at least {n_special + 1}, as {n_special} are special tokens."
        )
    encoded = tokenizer(list(sentences), truncation=True, max_length=max_tokens)["input_ids"]
    return [np.array(ids, np.int32) for ids in encoded]


def decode_tokens(tokenizer: PreTrainedTokenizerBase, sequences: Iterable[Sequence[int]]) -> list[str]:
    """Decode token ids to strings, without special tokens and outer white space."""
    texts = tokenizer.batch_decode([list(map(int, ids)) for ids in sequences], skip_special_tokens=True)
    return [text.strip() for text in texts]
