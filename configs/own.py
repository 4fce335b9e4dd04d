"""Recordings of one's own: a small model and three controls, for some tens of sentences and a few subjects.

`eeg2text run --config=own --config.data.source=FILES --workdir=DIR` takes any source that `eeg2text prepare` does.
Half of the sentences are for testing, because a verdict needs at least 30 test sentences; with hundreds of sentences
take a smaller share: `--config.split.ratio='(0.8,0.1,0.1)'`. `backbone` and `checkpoint` are arguments as in
`zuco_words`. A pretrained checkpoint writes better sentences, but the verdict is about the recordings in both cases.
"""

from ml_collections import ConfigDict

from configs import default
from configs.arguments import parse
from configs.zuco_words import SHAPES, set_model


def get_config(argument: str = "") -> ConfigDict:
    given = parse(argument, "own", backbone=tuple(SHAPES), checkpoint="")
    c = default.get_config()
    c.data.source = "recordings"
    c.split.ratio = (0.4, 0.1, 0.5)
    c.text.vocab_size = 400
    c.batch.buckets = ((16, 24), (56, 56))
    c.batch.size = 16
    set_model(c, given.backbone, given.checkpoint)
    c.grid.eval_conditions = ("eeg", "noise", "shuffled")
    c.decode.repetition_penalty = 1.0  # the paper's 5.0 and 2 suit pretrained models; small ones then write nonsense
    c.decode.no_repeat_ngram_size = 0
    c.train.steps = 300
    c.train.eval_every = 25
    c.parallel.arms = "auto"
    return c
