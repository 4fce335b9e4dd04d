"""The demonstration: synthetic data, a tiny model, minutes on two CPU cores.

`eeg2text run --config=configs/demo.py --workdir=/tmp/planted` plants the words in the "EEG"; with
`--config=configs/demo.py:null` the "EEG" has no information about the words, and three seeds are trained.
`demo.py:planted,objective=contrastive` and `demo.py:null,objective=contrastive` ask which sentence was read.
"""

from ml_collections import ConfigDict

from configs import default
from configs.arguments import parse
from eeg2text_jax.base.errors import UserError


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


def set_tiny(c: ConfigDict, data: str) -> None:
    """Set made-up data ("zuco": words, "narratives": scans) and a tiny model: `demo=yes` of a recipe at full size.

    Optimizer, splits, arms and decoding stay the recipe's. Its epochs are at most two, and its rate is at most 1e-4: in
    so few steps, 1e-3 teaches that texts end and nothing else, and teacher-forced texts are empty.
    """
    c.model.checkpoint, c.model.dtype, c.model.remat, c.text.tokenizer = "", "float32", False, ""
    c.model.encoder_layers, c.model.encoder_heads, c.model.encoder_ffn = 1, 4, 64
    c.model.unicorn.hidden, c.model.unicorn.channels = 32, (8, 16)
    small = {"d_model": 32, "num_layers": 1, "num_heads": 4, "d_kv": 8, "d_ff": 64}  # a T5's fields
    if c.model.backbone != "t5":
        sides = {f"{side}_{name}": value for side in ("encoder", "decoder")
                 for name, value in {"layers": 1, "attention_heads": 4, "ffn_dim": 64}.items()}  # fmt: skip
        small = {**c.model.shape.to_dict(), "d_model": 32, "max_position_embeddings": 64, **sides}
        small["init_std"] = 0.3  # with 0.02 the tied embeddings repeat the start token, and each w/tf text is empty
    c.model.shape = small
    c.text.max_tokens = c.decode.max_length = 26
    c.optim.lr = min(c.optim.lr, 1e-4)
    c.text.vocab_size = 400  # the texts of each split give so many, so that runs have the same programs
    c.parallel.arms = "auto"
    for stage in (c.train, c.pretrain.snapshot, c.pretrain.series):
        stage.epochs = min(stage.epochs, 2)
    if data == "zuco":
        c.data.source = "synthetic"
        c.data.synthetic.update({"sentences": 300, "subjects": 4, "tasks": 3})
        c.batch.buckets = ((20, 26),)
    else:
        c.data.source = "synthetic-fmri"
        c.data.synthetic_fmri.update({"grid": (8, 8, 6), "subjects": 6, "heard": 6, "stories": 6, "vocabulary": 60})
        c.data.synthetic_fmri.frames = 320  # the test story of split (f) has 32 windows side by side, for a verdict
        c.data.fmri.stride = 5
        c.batch.buckets = ((10, 26),)


def set_contrastive(c: ConfigDict) -> None:
    """Set the objective "which sentence was read?", with arms for EEG and for controls that it must beat."""
    c.objective = "contrastive"
    c.contrastive.width = 128
    c.batch.size = 64  # the loss compares each recording with the other recordings of its batch
    c.grid.train_conditions = ("eeg", "noise", "length_only")
    c.grid.eval_conditions = ("eeg", "noise", "length_only", "shuffled")
