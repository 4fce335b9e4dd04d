"""The demonstration on waves: made-up recordings of 4 channels, a tiny model, minutes on two CPU cores.

`eeg2text run --config=configs/demo_waves.py:planted,encoder=labram --workdir=/tmp/planted` plants each word as waves of
0.4 s, of 2.5, 5, ... 40 Hz. With `null` the waves have no information about the words. With `drift`, sentences of six
kinds are shown in blocks, and only a slow drift tells the kind: what the model reads off the waves is the time.

`encoder=conv|labram|cbramod|reve` has random weights, before a BART; `encoder=whisper` is a whole Whisper.
"""

from ml_collections import ConfigDict

from configs import demo
from configs.arguments import parse
from configs.waves import set_waves
from eeg2text_jax.base.errors import UserError

RATE, WORD = 100.0, 0.4  # samples a second, seconds of a word
PATCH = 40  # samples of a patch: a word
LONGEST = 20  # words of a sentence


def get_config(argument: str = "planted") -> ConfigDict:
    """Return the configuration for "planted", "null" or "drift"; `,encoder=NAME` may follow."""
    data, _, rest = argument.partition(",")
    if data not in ("planted", "null", "drift"):
        raise UserError(f"configs/demo_waves.py:{argument}: expected `planted`, `null` or `drift` after the colon.")
    given = parse(rest, f"configs/demo_waves.py:{data}", encoder=("conv", "labram", "cbramod", "reve", "whisper"))
    c = demo.get_config("planted")
    set_waves(c, LONGEST * WORD, RATE)
    c.data.source = "synthetic"
    c.data.raw.window = WORD
    c.data.synthetic.update({"sentences": 400, "vocabulary": 40, "features": 4})
    c.data.synthetic.signal = 1.0 if data == "planted" else 0.0
    c.batch.buckets = ((12 * PATCH, 16), (LONGEST * PATCH, 26))
    c.train.steps = 300
    c.decode.update({"num_beams": 1, "max_length": 26, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0})
    c.model.encoder_width = 80
    c.model.encoder_heads = 4
    c.model.encoder_ffn = 128
    c.model.dropout = 0.0
    if given.encoder == "whisper":
        shape = {**c.model.shape.to_dict(), "max_source_positions": 256, "max_target_positions": 64}
        del shape["max_position_embeddings"]
        c.model.update({"backbone": "whisper", "encoder": "conv", "encoder_layers": 0})
        c.model.shape = shape
        c.model.waves.strides = (2, 2)  # Whisper's own convolution has stride 2, too
    else:
        c.model.encoder = given.encoder
        c.model.shape.max_position_embeddings = 128
        c.model.waves.update({"strides": (2, 2, 2, 5), "patch": PATCH, "overlap": 0})  # a position is a word
    if data == "drift":
        c.data.synthetic.update({"drift": 2.0, "order": "blocks", "groups": 6, "vocabulary": 240})
        c.data.synthetic.update({"sentences": 600, "subjects": 3, "tasks": 1})
        c.split.ratio = (0.7, 0.05, 0.25)
        c.grid.train_conditions = ("eeg", "clock")
        c.grid.eval_conditions = ("eeg", "shuffled", "clock", "nearest_in_time", "neighbor")
        c.train.steps = 150
    return c
