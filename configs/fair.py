"""The fair benchmark of the cross-subject paper (its Table 4): unseen subjects and unseen texts, split (f), 8:1:1.

    eeg2text prepare ZUCO/task1-SR ZUCO/task2-NR ZUCO/task3-TSR --compat=wang-ji --out=zuco.h5
    eeg2text run --config=configs/fair.py:model=unicorn,data=zuco --workdir=DIR

Arguments: `model=unicorn|eeg2text`; `data=zuco|narratives`, which names the data file `DATA.h5`; `pretrain=no`, the
paper's UniCoRN* with a random encoder; `budget=equal`, which trains EEG2Text with the epochs, batch size, optimizer
and learning rates of UniCoRN's text stage instead of the paper's; `demo=yes`,
made-up data and a tiny model; `checkpoint`, a folder instead of the Hub's name, or
`random` for random weights of BART-large's shape (with `tokenizer=FOLDER`). An epoch is one pass over the train part of
the split.

From the paper (its appendix A): BART; 30 epochs for UniCoRN's encoder and 10 epochs in batches of 90 for its text
stage, both with a learning rate of 1e-4 that decays to 1e-6; 80 epochs with 1e-6 for EEG2Text; reconstruction in
batches of 512 word vectors or 320 volumes; windows of L = 10 volumes. The paper does not state these, so they are our
choice: how the 30 epochs are divided between the two reconstructions (half each), the samples of a batch (320 volumes
are 32 windows of 10; 512 words are 26 sentences, as ZuCo's have 19.8 words on average), the decay (linear), the
optimizer (AdamW; for EEG2Text SGD with momentum 0.9 and batches of 32, as in its authors' code), BART-large, decoding.
All rows of the table have the same tokenizer, the same decoding, and a noise arm.
"""

from ml_collections import ConfigDict

from configs import default, demo
from configs.arguments import parse
from eeg2text_jax.base.errors import UserError

RECONSTRUCTED = {"zuco": 26, "narratives": 32}  # samples of a batch: 512 words, 320 volumes
ENCODER_EPOCHS, TEXT_EPOCHS, TEXT_BATCH = (15, 15), 10, 90
LR, LR_END = 1e-4, 1e-6


def get_config(argument: str = "") -> ConfigDict:
    given = parse(
        argument,
        "configs/fair.py",
        model=("unicorn", "eeg2text"),
        data=("zuco", "narratives"),
        pretrain=("yes", "no"),
        budget=("paper", "equal"),
        demo=("no", "yes"),
        checkpoint="",
        tokenizer="",
    )
    if given.model == "eeg2text" and given.data == "narratives":
        raise UserError("configs/fair.py: EEG2Text is for words; expected data=zuco with model=eeg2text.")
    c = default.get_config()
    set_data(c, given.data)
    set_backbone(c, given.checkpoint, given.tokenizer)
    if given.model == "unicorn":
        set_unicorn(c, given.data)
        c.pretrain.enabled = given.pretrain == "yes"
    if given.model == "unicorn" or given.budget == "equal":
        set_text(c)
    else:
        set_eeg2text(c)
    if given.demo == "yes":
        demo.set_tiny(c, given.data)
    return c


def set_data(c: ConfigDict, data: str) -> None:
    """Set the data file, the split and the shapes of batches."""
    c.data.source = f"{data}.h5"
    c.data.standardize = False  # each word, or each voxel over its run, is already standardized
    c.data.recordings.compat = "wang-ji"  # ZuCo's sentences as EEG2Text's authors filter them
    c.split.method = "f"
    c.split.ratio = (0.8, 0.1, 0.1)
    if data == "narratives":  # 15 s of speech, about 45 words
        c.text.max_tokens = 96
        c.decode.max_length = 96
        c.batch.buckets = ((10, 96),)


def set_backbone(c: ConfigDict, checkpoint: str, tokenizer: str) -> None:
    """Set BART-large, with the options that make it fast on accelerators."""
    c.model.backbone = "bart"
    c.text.tokenizer = tokenizer
    if checkpoint != "random":
        c.model.checkpoint = checkpoint or "facebook/bart-large"
    c.model.dtype = "bfloat16"
    c.model.remat = True
    c.train.rng = "rbg"


def set_unicorn(c: ConfigDict, data: str) -> None:
    """Set UniCoRN's encoder and its two pretraining stages."""
    c.model.encoder = "unicorn"
    c.model.encoder_layers = 4
    for name, epochs in zip(("snapshot", "series"), ENCODER_EPOCHS, strict=True):
        stage = c.pretrain[name]
        stage.batch_size = RECONSTRUCTED[data]
        stage.epochs, stage.eval_epochs = epochs, 1
        stage.lr, stage.lr_end, stage.schedule = LR, LR_END, "linear"


def set_text(c: ConfigDict) -> None:
    """Set the text stage of UniCoRN: AdamW, with a learning rate from 1e-4 to 1e-6."""
    c.batch.size = TEXT_BATCH
    c.decode.batch_size = 32
    c.optim.lr, c.optim.lr_end, c.optim.schedule = LR, LR_END, "linear"
    c.optim.warmup_steps = 0
    set_epochs(c, TEXT_EPOCHS)


def set_eeg2text(c: ConfigDict) -> None:
    """Set EEG2Text's training: from the paper, or from its authors' code where the paper states nothing."""
    c.batch.size = 32
    c.optim.name, c.optim.lr, c.optim.schedule = "sgd", 1e-6, "constant"
    c.optim.warmup_steps, c.optim.weight_decay, c.optim.grad_clip = 0, 0.0, 0.0
    set_epochs(c, 80)


def set_epochs(c: ConfigDict, epochs: int) -> None:
    """Set the number of epochs, with an evaluation on dev and a checkpoint after each."""
    c.train.epochs, c.train.eval_epochs, c.train.save_epochs = epochs, 1, 1
