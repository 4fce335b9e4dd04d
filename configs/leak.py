"""How a leak shows: a model that can only memorise, on recordings without information, under a split that leaks or not.

`eeg2text run --config=configs/leak.py:c --workdir=/tmp/leak_c` and `...leak.py:f --workdir=/tmp/leak_f`, or both and
the comparison by `python tools/calibrations/leak.py /tmp/leak`; minutes on two CPU cores. The features have no
information about the words (signal 0). So a score above the score under split (f) comes from test texts that are also
in train: the number of words of a sample tells which of these texts it may be, under EEG and under noise alike.
"""

from ml_collections import ConfigDict

from configs import default
from eeg2text_jax.base.errors import UserError


def get_config(split: str = "c") -> ConfigDict:
    """`split` is "c" (pooled samples: texts and subjects leak), "a" (texts leak) or "f" (nothing does)."""
    if split not in ("a", "c", "f"):
        raise UserError(f"configs/leak.py:{split}: expected `a`, `c` or `f` after the colon.")
    c = default.get_config()
    c.data.synthetic.signal = 0.0
    c.data.synthetic.sentences = 24  # few, so that their length nearly tells them apart
    c.data.synthetic.subjects = 40
    c.data.synthetic.tasks = 1
    c.data.synthetic.features = 4
    c.data.synthetic.vocabulary = 80
    c.split.method = split
    c.split.ratio = (0.5, 0.25, 0.25)  # (f) keeps the square of each share
    c.batch.buckets = ((20, 56),)
    c.optim.lr = 3e-3
    c.optim.weight_decay = 0.0
    c.train.steps = 300
    c.train.eval_every = 50
    c.train.save_every = 300
    c.decode.num_beams = 1
    c.decode.max_length = 48
    c.decode.repetition_penalty = 1.0  # the sentences, random walks over the words, may repeat words
    c.decode.no_repeat_ngram_size = 0
    c.model.encoder_layers = 0
    c.model.shape = {
        "d_model": 64,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 128,
        "decoder_ffn_dim": 128,
        "max_position_embeddings": 64,
        "dropout": 0.0,
        "init_std": 0.1,  # about 1/sqrt(width), as in configs/demo.py
    }
    c.parallel.arms = "auto"
    return c
