"""What a leaking split does to the fair benchmark's models: the cross-subject paper's Tables 2 and 3 and its Figure 4.

    eeg2text run --config=configs/leakage.py:method=c,data=narratives --workdir=DIR

Arguments: `method=a|b|c|d|e|f`: by subject, by task, pooled samples, samples within a task, consecutive samples
within a task, and the corrected one (f) without leakage; `model`, `data`, `pretrain`, `demo`, `checkpoint` and
`tokenizer` as in configs/fair.py; `epochs` and `lr` of the text stage. An epoch is one pass over the train part of
the split, so every method trains each of its samples equally often. The paper has 10 epochs with lr 1e-3 on fMRI with
pretraining, 20 or 30 epochs with 1e-4 on fMRI without pretraining, and 50 or 80 epochs with 1e-4 on EEG; the first
number of each is the default here. The dev losses of the reconstructions, which the paper's Figure 4 draws, are in
DIR/snapshot and DIR/series; `eeg2text reproduce fair-figure-4` draws several runs in one figure.
(configs/leak.py is a small demonstration on synthetic data without information.)
"""

from ml_collections import ConfigDict

from configs import demo, fair
from configs.arguments import parse
from eeg2text_jax.base.errors import UserError

METHODS = ("a", "b", "c", "d", "e", "f")
EPOCHS = {("narratives", "yes"): ("10", "1e-3"), ("narratives", "no"): ("20", "1e-4")}
ENCODER_LR = {"zuco": 1e-4, "narratives": 1e-3}  # the paper: "as the author claimed in the original paper"


def get_config(argument: str = "") -> ConfigDict:
    given = parse(
        argument,
        "configs/leakage.py",
        method=METHODS[::-1],
        model=("unicorn", "eeg2text"),
        data=("narratives", "zuco"),
        pretrain=("yes", "no"),
        checkpoint="",
        tokenizer="",
        epochs="",
        lr="",
        demo=("no", "yes"),
    )
    if given.data == "zuco" and given.method in ("b", "e"):
        raise UserError(
            f"configs/leakage.py: method={given.method} is for stories (ZuCo has too few tasks for b, and the paper "
            "counts e as d on ZuCo); expected a, c, d or f."
        )
    wanted = ",".join(f"{name}={getattr(given, name)}" for name in ("model", "data", "pretrain", "checkpoint"))
    c = fair.get_config(f"{wanted},tokenizer={given.tokenizer}")
    c.split.method = given.method
    epochs, lr = EPOCHS.get((given.data, given.pretrain), ("50", "1e-4"))
    try:
        epochs, c.optim.lr = int(given.epochs or epochs), float(given.lr or lr)
    except ValueError as error:
        raise UserError(f"configs/leakage.py:{argument}: epochs and lr are numbers ({error}).") from error
    if epochs < 1:
        raise UserError(f"configs/leakage.py:{argument}: epochs is {epochs}; expected a whole number above 0.")
    fair.set_epochs(c, epochs)
    c.optim.schedule = "constant"  # in the paper 30 epochs under (b) end where 20 do, so they have the same rates
    for name in ("snapshot", "series"):
        c.pretrain[name].lr = ENCODER_LR[given.data]
    if given.demo == "yes":
        demo.set_tiny(c, given.data)
    return c
