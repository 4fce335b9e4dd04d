"""The real word-feature table of ZuCo: its eight EEG columns, averaged over subjects and binned.

`eeg2text run --config=configs/zuco_words.py --config.data.source=TABLE.tsv --workdir=DIR` takes a few minutes on two
CPU cores; expect the noise arm to score as the EEG arm does. The table's gaze columns depend on word length and
frequency, so run them separately: `--config.data.table.feature_columns=1,2,3`.

Arguments: `backbone=bart|pegasus|t5|bert2bert`, a small model with random weights; `checkpoint`, a folder or a name on
the Hub, for pretrained weights instead; `backbone=bert2bert,checkpoint=minilm` warm-starts both sides from MiniLM.
`objective=contrastive` asks which sentence was read instead of writing it (docs/retrieval.md), with `text=minilm`, or
another text encoder, as targets.
"""

from ml_collections import ConfigDict

from configs import default
from configs.arguments import parse

GAZE_COLUMNS = tuple(range(1, 18))
EEG_COLUMNS = tuple(range(18, 26))

_BART = {
    "d_model": 128,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 256,
    "decoder_ffn_dim": 256,
    "max_position_embeddings": 64,
    "init_std": 0.08,  # about 1/sqrt(d_model), as in configs/demo.py
}
SHAPES = {  # of the backbones with random weights
    "bart": _BART,
    "pegasus": _BART,
    "t5": {"d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 1, "num_heads": 4},
    "bert2bert": {
        "hidden_size": 128,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "max_position_embeddings": 64,
        "initializer_range": 0.08,
    },
}


def set_model(c: ConfigDict, backbone: str, checkpoint: str) -> None:
    """Set a small EEG encoder, a checkpoint or else a small backbone with random weights, and the learning rate."""
    c.model.encoder_layers = 1
    c.model.encoder_width = 64
    c.model.encoder_ffn = 256
    c.model.backbone = backbone
    c.model.checkpoint = checkpoint
    if not checkpoint:
        c.model.shape = SHAPES[backbone]
    c.optim.lr = 2e-3 if not checkpoint else 2e-4  # with 2e-3, pretrained weights forget what they learned
    c.optim.warmup_steps = 30


def set_contrastive(c: ConfigDict, text: str = "") -> None:
    """Set the objective "which sentence was read?", with arms for EEG and for controls, three seeds each."""
    c.objective = "contrastive"
    c.contrastive.text = text
    c.contrastive.width = 128
    c.batch.size = 64  # the loss compares each recording with the other recordings of its batch
    c.grid.train_conditions = ("eeg", "noise", "length_only")
    c.grid.eval_conditions = ("eeg", "noise", "length_only", "shuffled")
    c.grid.seeds = (0, 1, 2)


def get_config(argument: str = "") -> ConfigDict:
    objectives = ("generate", "contrastive")
    given = parse(
        argument, "configs/zuco_words.py", backbone=tuple(SHAPES), checkpoint="", objective=objectives, text=""
    )
    c = default.get_config()
    c.data.source = "zuco_word_features.tsv"
    c.data.table.feature_columns = EEG_COLUMNS
    c.data.table.features_are = "8 EEG bands, averaged over subjects, binned to 0-7"
    c.text.vocab_size = 2000
    c.batch.buckets = ((24, 56), (56, 56))
    c.batch.size = 16  # the table has 551 sentences to train on
    set_model(c, given.backbone, given.checkpoint)
    c.train.steps = 200
    c.train.eval_every = 25
    c.parallel.arms = "auto"
    if given.objective == "contrastive":
        set_contrastive(c, given.text)
    return c
