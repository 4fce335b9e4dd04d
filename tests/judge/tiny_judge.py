"""A frozen T5 of random weights with the toy's words, pairs of the toy, and a configuration that tunes in seconds."""

import jax
import numpy as np

from configs.judge import get_config
from eeg2text_jax.base.kinds import read_section
from eeg2text_jax.judge.fields import JudgeSettings
from eeg2text_jax.judge.frozen import Frozen
from eeg2text_jax.judge.pairs import preserved_of
from eeg2text_jax.judge.toy import LABELS, toy_pairs, toy_tokenizer, toy_wording
from eeg2text_jax.judge.wording import read_labels
from eeg2text_jax.models.backbones.build import describe, random_config
from eeg2text_jax.models.functional import Seq2SeqModel

SHAPE = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0}


def tiny_frozen(**fields):
    """2 + 2 layers of width 32."""
    tokenizer = toy_tokenizer()
    config = random_config("t5", {**SHAPE, "tie_word_embeddings": True, **fields}, tokenizer)
    model = Seq2SeqModel(describe(config, "t5", "tiny"))
    return Frozen("tiny", None, model, model.init(jax.random.key(0)), tokenizer, "0" * 64, "tiny")


def tiny_batch(frozen, n=8, width=24):
    pairs = toy_pairs(n, 1)
    wording = toy_wording()
    texts = frozen.tokenizer([wording.text(*pair.texts) for pair in pairs])["input_ids"]
    ids = np.zeros((n, width), np.int32)
    for row, tokens in enumerate(texts):
        ids[row, : len(tokens)] = tokens
    return {
        "ids": ids,
        "length": np.array(list(map(len, texts)), np.int32),
        "yes": preserved_of(pairs),
        "weight": np.ones(n, np.float32),
    }


def counted_auc(scores, labels):
    """The area under the ROC curve, from all pairs of a preserved and a lost one."""
    yes, no = scores[labels, None], scores[~labels]
    return ((yes > no) + (yes == no) / 2).mean()


def tiny_labels(frozen):
    return read_labels(LABELS, frozen.tokenizer)


def tiny_config(**changes):
    """The toy's configuration, cut short."""
    c = get_config("checkpoint=toy")
    c.compilation_cache = ""
    c.encoder = ""
    c.seeds, c.optim.lr = (0, 1), (0.3,)
    c.toy.update({"width": 32, "steps": 4, "pairs": 120, "batch_size": 8})
    c.train.update({"steps": 6, "eval_every": 2, "save_every": 2})
    c.optim.warmup_steps = 2
    c.batch.size = 8
    for name, value in changes.items():
        section, _, field = name.rpartition("__")
        (c[section] if section else c)[field] = value
    return read_section(JudgeSettings, c)
