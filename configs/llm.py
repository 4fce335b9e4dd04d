"""A decoder-only language model behind the EEG encoder: frozen, or with low-rank adapters, under the grid's controls.

    eeg2text run --config=configs/llm.py:model=tiny --workdir=DIR
    eeg2text run --config=configs/llm.py:model=llama3-8b --config.data.source=DATA.h5 --workdir=DIR

Arguments: `model`, a checkpoint by its short name; `tiny` is a small Llama with random weights, all of
which are trained, on made-up data; 2 to 5 minutes on two cores. `train=lora|bridge|all`; `checkpoint`, a folder in
place of the Hub's name.

The recipe is Thought2Text's as far as its paper says (Mishra et al. 2025): the language model, its chat template, a
recording in the place of an image's embedding, training of the bridge, then of adapters. What the paper
leaves out is our choice: rank, alpha and projections of the adapters, learning rate, batch. We have one stage instead
of three, because their first two learn from images. Their prompt names a predicted class of object; with `{task}` in
`text.template`, ours names the task of the sentence. The control `prompt_only` shows how much of the text comes from
the prompt.
"""

from ml_collections import ConfigDict

from configs import default
from configs.arguments import parse

CHECKPOINTS = {  # short name -> backbone, name on the Hub
    "tiny": ("llama", ""),
    "llama3-8b": ("llama", "meta-llama/Meta-Llama-3-8B-Instruct"),
    "llama3-70b": ("llama", "meta-llama/Meta-Llama-3-70B-Instruct"),
    "mistral-7b": ("mistral", "mistralai/Mistral-7B-Instruct-v0.3"),
    "qwen2.5-7b": ("qwen2", "Qwen/Qwen2.5-7B-Instruct"),
    "qwen2.5-14b": ("qwen2", "Qwen/Qwen2.5-14B-Instruct"),
    "qwen2.5-32b": ("qwen2", "Qwen/Qwen2.5-32B-Instruct"),
    "qwen2.5-0.5b": ("qwen2", "Qwen/Qwen2.5-0.5B-Instruct"),
    "qwen3-8b": ("qwen3", "Qwen/Qwen3-8B"),
    "gemma-2b": ("gemma", "google/gemma-2b-it"),
    "gemma2-2b": ("gemma2", "google/gemma-2-2b-it"),
    "gemma3-1b": ("gemma3", "google/gemma-3-1b-it"),
}
SHAPES = {  # what `eeg2text preflight` compiles without a checkpoint
    "llama3-8b": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
    },
    "llama3-70b": {
        "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
        "num_key_value_heads": 8, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
    },
    "mistral-7b": {"hidden_size": 4096, "intermediate_size": 14336, "num_key_value_heads": 8, "sliding_window": None},
    "qwen2.5-7b": {
        "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
        "num_key_value_heads": 4,
    },
    "qwen2.5-14b": {
        "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 48, "num_attention_heads": 40,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-6,
    },
    "qwen2.5-32b": {
        "hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 40,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-6,
    },
    "qwen2.5-0.5b": {
        "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
        "num_key_value_heads": 2, "tie_word_embeddings": True,
    },
    "qwen3-8b": {"intermediate_size": 12288, "num_hidden_layers": 36, "num_key_value_heads": 8},
    "gemma-2b": {
        "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 18, "num_attention_heads": 8,
        "num_key_value_heads": 1,
    },
    "gemma2-2b": {},  # the defaults of transformers.Gemma2Config
    "gemma3-1b": {
        "hidden_size": 1152, "intermediate_size": 6912, "num_attention_heads": 4, "num_key_value_heads": 1,
        "sliding_window": 512,
    },
}  # fmt: skip
LARGE = (  # 14 GiB and more in bfloat16, and decoding needs more
    "llama3-8b", "llama3-70b", "mistral-7b", "qwen2.5-7b", "qwen2.5-14b", "qwen2.5-32b", "qwen3-8b",
)  # fmt: skip
TINY = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 192, "tie_word_embeddings": True,
    "initializer_range": 0.08,  # about 1/sqrt(hidden_size); with 0.02 nothing of the EEG is learnt in 400 steps
}  # fmt: skip


def get_config(argument: str = "") -> ConfigDict:
    given = parse(
        argument,
        "configs/llm.py",
        model=tuple(CHECKPOINTS),
        train=("", "lora", "bridge", "all"),
        checkpoint="",
    )
    c = default.get_config()
    c.grid.train_conditions = ("eeg", "noise")
    c.grid.eval_conditions = ("eeg", "noise", "shuffled", "prompt_only")
    c.decode.repetition_penalty = 1.0  # the paper's 5.0 is for its encoder-decoders
    c.decode.no_repeat_ngram_size = 0
    c.decode.num_beams = 1  # greedy, as is usual for these models
    c.model.backbone, name = CHECKPOINTS[given.model]
    c.model.checkpoint = given.checkpoint or name
    if given.model == "tiny":
        return _tiny(c, given.train)
    c.model.shape = SHAPES[given.model]
    c.optim.trainable = given.train or "lora"
    c.text.template = "<eeg> Write the sentence that was read during this recording."
    c.text.chat = True
    c.model.dtype = "bfloat16"
    c.model.remat = True
    c.parallel.fsdp = True  # divide the frozen model over the devices that share a batch
    c.parallel.mesh = (1, 0)  # all devices share the batch, so a slice holds the frozen model once for all arms
    c.decode.tensor_parallel = given.model in LARGE and c.optim.trainable != "all"
    c.train.rng = "rbg"
    c.train.epochs = 10
    c.train.eval_epochs = 1
    c.train.save_epochs = 1
    c.optim.lr = 2e-4
    return c


def _tiny(c: ConfigDict, train: str) -> ConfigDict:
    """Set a model that is small enough for two cores, and planted data."""
    c.optim.trainable = train or "all"
    c.model.shape = TINY
    c.text.template = "<eeg> What was read?"
    c.grid.eval_conditions = ("eeg", "noise", "shuffled")  # no prompt_only: without a recording, tiny writes nothing
    c.data.synthetic.sentences = 600
    c.data.synthetic.vocabulary = 60
    c.text.vocab_size = 400
    c.text.max_tokens = 40
    c.batch.buckets = ((28, 40),)
    c.data.max_words = 28
    c.model.encoder_layers = 1
    c.model.encoder_heads = 4
    c.model.encoder_ffn = 128
    c.model.dropout = 0.0
    c.decode.max_length = 40
    c.parallel.arms = "auto"
    c.train.steps = 400
    c.train.eval_every = 100
    c.train.save_every = 400
    c.optim.lr = 3e-3
    return c
