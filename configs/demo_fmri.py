"""The demonstration on fMRI: planted stories, a small UniCoRN, minutes on two CPU cores; `bash tools/demo_fmri.sh`.

`eeg2text run --config=configs/demo_fmri.py --workdir=/tmp/planted` plants the words in made-up volumes, which are
written as a BIDS tree and read like any BIDS tree. The test part has unseen subjects who hear unseen stories (split f).
With `--config=configs/demo_fmri.py:null` the volumes have no information about the words.
"""

from ml_collections import ConfigDict

from configs import demo
from eeg2text_jax.base.errors import UserError


def get_config(data: str = "planted") -> ConfigDict:
    """`data` is "planted" (signal 1) or "null" (signal 0)."""
    if data not in ("planted", "null"):
        raise UserError(f"configs/demo_fmri.py:{data}: expected `planted` or `null` after the colon.")
    c = demo.get_config("planted")
    c.data.source = "synthetic-fmri"
    c.data.synthetic_fmri.signal = 1.0 if data == "planted" else 0.0
    c.data.synthetic_fmri.grid = (8, 8, 6)
    c.data.synthetic_fmri.vocabulary = 60
    c.data.synthetic_fmri.stories = 48  # so at least 30 test windows share no text, as an audit needs
    c.data.fmri.lag_tr = 3  # the same as data.synthetic_fmri.lag_tr
    c.data.fmri.detrend = 2
    c.data.fmri.mask = 0.2
    c.data.fmri.stride = 5
    c.split.method = "f"
    c.text.vocab_size = 900
    c.text.max_tokens = 24
    c.batch.buckets = ((10, 24),)
    c.model.encoder = "unicorn"
    c.model.unicorn.hidden = 128
    c.model.unicorn.channels = (16, 32)
    c.pretrain.enabled = True
    for stage in (c.pretrain.snapshot, c.pretrain.series):
        stage.steps = 60
        stage.eval_every = 30
        stage.batch_size = 16
        stage.lr = 3e-3
    c.train.steps = 200
    c.decode.max_length = 24
    c.decode.num_beams = 2
    return c
