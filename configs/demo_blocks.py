"""The trap of block designs, with a small trained network: made-up recordings with slow drift or with words.

`eeg2text run --config=configs/demo_blocks.py:drift --workdir=/tmp/drift` shows sentences of six kinds, one block
per kind, to three readers. The electrodes drift, and have no information about the words. `:words` plants the words,
without drift. `order=random` after a comma shows the same sentences in random order. Arms are trained on EEG and on the
clock, and are also tested with the three controls of time. `bash tools/demo_blocks.sh` runs all four.
"""

from ml_collections import ConfigDict

from configs import demo
from configs.arguments import parse
from eeg2text_jax.base.errors import UserError


def get_config(argument: str = "drift") -> ConfigDict:
    """Return the configuration for "drift" (no words) or "words" (no drift); `,order=random` may follow."""
    data, _, rest = argument.partition(",")
    if data not in ("drift", "words"):
        raise UserError(f"configs/demo_blocks.py:{argument}: expected `drift` or `words` after the colon.")
    given = parse(rest, f"configs/demo_blocks.py:{data}", order=("blocks", "random"))
    c = demo.get_config("planted")
    c.data.synthetic.signal = 1.0 if data == "words" else 0.0
    c.data.synthetic.drift = 2.0 if data == "drift" else 0.0
    c.data.synthetic.order = given.order
    c.data.synthetic.groups = 6
    c.data.synthetic.vocabulary = 240
    c.data.synthetic.sentences = 600
    c.data.synthetic.subjects = 3
    c.data.synthetic.tasks = 1
    c.split.ratio = (0.7, 0.05, 0.25)
    c.grid.train_conditions = ("eeg", "clock")
    c.grid.eval_conditions = ("eeg", "shuffled", "clock", "nearest_in_time", "neighbor")
    c.train.steps = 150
    c.train.eval_every = 50
    c.decode.num_beams = 1
    c.decode.max_length = 24
    c.decode.repetition_penalty = 1.0
    c.decode.no_repeat_ngram_size = 0
    return c
