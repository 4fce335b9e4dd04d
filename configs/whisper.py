"""NeuSpeech's recipe (Yang et al. 2024, arXiv 2403.01748), as far as it is published: MEG waves into a Whisper.

    eeg2text prepare BIDS_FOLDER --out=waves.h5 --config.data.raw.features=waves --config.data.raw.channels=meg \\
      --config.data.raw.resample=200 --config.data.raw.highpass=1 --config.data.raw.lowpass=60
    eeg2text run --config=configs/whisper.py:size=base --config.data.source=waves.h5 --workdir=DIR

Arguments: `size=base|tiny|small|medium|large`; `checkpoint`, a folder in place of the Hub's name, or `random`;
`language=en`; `seconds`, to which longer recordings are cut.

From their code (NeuSpeech1, finetune.py): two convolutions over the channels, the second with stride 2, before
Whisper's own second convolution; 200 samples a second, at most 30 seconds; the language, the task and no timestamps
before the text; AdamW with a learning rate of 1e-3 that falls linearly after a warm-up of 10,000 steps; 30 epochs; 5
beams with a repetition penalty of 5 and no repeated pair of tokens (evaluation.py).
Where we differ:

- They train AdaLoRA adapters of the encoder, whose rank shrinks from 12 to 4 (alpha 32, dropout .1), and both of its
  convolutions, with the decoder frozen. We have low-rank adapters of one rank, 4, of all six projections of the
  encoder; Whisper's own convolution is frozen, the ones over channels are trained. `train=all` trains everything.
- Batches of 32 in place of 2: the learning rate was not tuned for either here.
- Their recordings are padded to 30 seconds that attention sees. Here padding is hidden.
- Each channel is standardized over the train part. Theirs are scaled by their own range.
- Their data are augmented (noise, time, channels), and their training texts carry timestamps: there are none here.
- Their warm-up is longer than most runs on a small data set: it is cut to half of the steps.
"""

from ml_collections import ConfigDict

from configs import default
from configs.arguments import parse
from configs.waves import set_waves


def _shape(width: int, layers: int, heads: int) -> dict:
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {"layers": layers, "attention_heads": heads, "ffn_dim": 4 * width}.items()
    }
    return {"d_model": width, **sides}


SIZES = {
    "base": ("openai/whisper-base", _shape(512, 6, 8)),
    "tiny": ("openai/whisper-tiny", _shape(384, 4, 6)),
    "small": ("openai/whisper-small", _shape(768, 12, 12)),
    "medium": ("openai/whisper-medium", _shape(1024, 24, 16)),
    "large": ("openai/whisper-large-v3", _shape(1280, 32, 20)),
}


def get_config(argument: str = "") -> ConfigDict:
    given = parse(
        argument,
        "configs/whisper.py",
        size=tuple(SIZES),
        checkpoint="",
        language="en",
        seconds="30",
        train=("lora", "all", "bridge"),
    )
    c = default.get_config()
    set_waves(c, float(given.seconds), 200.0)
    name, c.model.shape = SIZES[given.size]
    c.model.backbone = "whisper"
    c.model.checkpoint = {"": name, "random": ""}.get(given.checkpoint, given.checkpoint)
    c.model.decoder_prompt = f"<|{given.language}|><|transcribe|><|notimestamps|>"
    c.model.encoder = "conv"
    c.model.encoder_layers = 0  # the convolutions alone: Whisper's encoder comes next
    c.model.waves.strides = (1, 2)
    c.model.dtype = "bfloat16"
    c.model.remat = True
    c.model.lora.rank = 4
    c.model.lora.alpha = 32.0
    c.model.lora.dropout = 0.1
    c.model.lora.targets = ("q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj")
    c.model.lora.stacks = ("encoder",)
    c.optim.trainable = given.train
    c.optim.lr = 1e-3
    c.optim.schedule = "linear"
    c.optim.warmup_steps = 10_000
    c.optim.weight_decay = 0.0
    c.decode.max_length = 60  # the start token and three of the prompt count
    c.train.rng = "rbg"
    c.train.epochs = 30
    c.train.eval_epochs = 1
    c.train.save_epochs = 1
    return c
