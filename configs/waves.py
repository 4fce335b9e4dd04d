"""Waves through an encoder by name into BART, T5 or a language model, under the grid's controls.

    eeg2text prepare BIDS_FOLDER --out=waves.h5 --config.data.raw.features=waves --config.data.raw.resample=200
    eeg2text run --config=configs/waves.py:encoder=labram,model=bart --config.data.source=waves.h5 --workdir=DIR

Arguments: `encoder=conv|whisper|labram|cbramod|reve`; `weights=pretrained|random` of the encoder, where `pretrained` is
its name on the Hub (`--config.model.encoder_checkpoint=FOLDER` for a folder); `model`, `bart`, `t5` or a name of
configs/llm.py; `checkpoint`, a folder in place of that model's name on the Hub, or `random`; `seconds`, to which longer
sentences are cut, and `rate`, the samples a second of the data file.

No paper has exactly these pairs, so the values are ours: the three pretrained encoders read 200 samples a second in
patches of one second (REVE's overlap by 0.1 s), and are trained with the rest. Their authors divide microvolts by 100;
here each channel is standardized over the train part, which has nearly the same size for EEG.
"""

from ml_collections import ConfigDict

from configs import default, llm, paper
from configs.arguments import parse

ENCODERS = {  # encoder -> its pretrained weights on the Hub, and the shape of the encoder with random weights
    "conv": ("", {"encoder_width": 512, "encoder_layers": 6, "encoder_heads": 8, "encoder_ffn": 2048}),
    "whisper": ("openai/whisper-base", {}),
    "labram": (
        "braindecode/labram-pretrained",
        {"encoder_width": 200, "encoder_layers": 12, "encoder_heads": 10, "encoder_ffn": 800},
    ),
    "cbramod": (
        "braindecode/cbramod-pretrained",
        {"encoder_width": 200, "encoder_layers": 12, "encoder_heads": 8, "encoder_ffn": 800},
    ),
    "reve": (
        "brain-bzh/reve-base",
        {"encoder_width": 512, "encoder_layers": 22, "encoder_heads": 8, "encoder_ffn": 1361},
    ),
}
MODELS = ("bart", "t5", *llm.CHECKPOINTS)


def get_config(argument: str = "") -> ConfigDict:
    given = parse(
        argument,
        "configs/waves.py",
        encoder=tuple(ENCODERS),
        weights=("pretrained", "random"),
        model=MODELS,
        checkpoint="",
        seconds="12",
        rate="200",
    )
    c = _with_model(given.model, given.checkpoint)
    set_waves(c, float(given.seconds), float(given.rate))
    name, shape = ENCODERS[given.encoder]
    c.model.encoder = given.encoder
    c.model.encoder_checkpoint = name if given.weights == "pretrained" else ""
    c.model.update(shape)
    c.model.waves.strides = (2, 2) if given.encoder == "conv" else (1, 2)  # whisper has one more, of stride 2
    return c


def _with_model(model: str, checkpoint: str) -> ConfigDict:
    """Return a configuration with a language model, by default pretrained."""
    if model in llm.CHECKPOINTS:
        return llm.get_config(f"model={model},checkpoint={checkpoint}")
    c = default.get_config()
    c.model.backbone = model
    c.model.checkpoint = {"": paper.CHECKPOINTS[model], "random": ""}.get(checkpoint, checkpoint)
    c.model.shape = paper.SHAPES[model]
    c.model.dtype = "bfloat16"
    c.model.remat = True
    c.train.rng = "rbg"
    c.train.epochs = 30
    c.train.eval_epochs = 1
    c.train.save_epochs = 1
    c.optim.lr = 5e-5
    return c


def set_waves(c: ConfigDict, seconds: float, rate: float) -> None:
    """Set batches of recordings up to so many seconds, and controls on waves."""
    c.data.source = "waves.h5"
    c.data.raw.features = "waves"
    c.data.raw.resample = rate
    longest = round(seconds * rate)
    c.data.max_words = longest
    c.batch.buckets = tuple((round(longest * share), 56) for share in (0.5, 0.75, 1.0))
    c.grid.train_conditions = ("eeg", "noise_spectrum")
    c.grid.eval_conditions = ("eeg", "noise_spectrum", "shuffled", "neighbor")
