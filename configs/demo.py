"""The demonstration: synthetic data, a tiny model, minutes on two CPU cores.

`eeg2text run --config=configs/demo.py --workdir=/tmp/planted` plants the words in the "EEG"; with
`--config=configs/demo.py:null` the "EEG" has no information about the words, and three seeds are trained. README.md has
the results.
`demo.py:planted,objective=contrastive` and `demo.py:null,objective=contrastive` ask which sentence was read.
"""

from ml_collections import ConfigDict

from configs import default
from configs.arguments import parse
from eeg2text_jax.errors import UserError


def get_config(argument: str = "planted") -> ConfigDict:
    """Return the configuration for "planted" (signal 1, one seed) or "null" (signal 0, three seeds).

    `,objective=contrastive` may follow in `argument`.
    """
    data, _, rest = argument.partition(",")
    if data not in ("planted", "null"):
        raise UserError(f"configs/demo.py:{argument}: expected `planted` or `null` after the colon.")
    given = parse(rest, f"configs/demo.py:{data}", objective=("generate", "contrastive"))
    c = default.get_config()
    c.data.synthetic.signal = 1.0 if data == "planted" else 0.0
    c.grid.seeds = (0,) if data == "planted" else (0, 1, 2)
    c.batch.buckets = ((12, 16), (20, 26))
    c.model.encoder_layers = 1
    c.model.encoder_ffn = 256
    c.model.shape = {
        "d_model": 128,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 256,
        "decoder_ffn_dim": 256,
        "max_position_embeddings": 64,
        "init_std": 0.08,  # about 1/sqrt(d_model); with BART's 0.02 nothing of the EEG is learnt in 600 steps
    }
    c.optim.lr = 3e-3
    c.train.steps = 400
    c.train.eval_every = 50
    c.parallel.arms = "auto"
    if given.objective == "contrastive":
        set_contrastive(c)
    return c


def set_contrastive(c: ConfigDict) -> None:
    """Set the objective "which sentence was read?", with arms for EEG and for controls that it must beat."""
    c.objective = "contrastive"
    c.contrastive.width = 128
    c.batch.size = 64  # the loss compares each recording with the other recordings of its batch
    c.grid.train_conditions = ("eeg", "noise", "length_only")
    c.grid.eval_conditions = ("eeg", "noise", "length_only", "shuffled")
