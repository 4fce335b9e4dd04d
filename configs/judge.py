"""The judge behind LATTEScore: a soft prompt on a frozen language model. Every field, and the only home of defaults.

`eeg2text judge --config=configs/judge.py:checkpoint=DIR,pairs=FILE.tsv --workdir=DIR` tunes on labelled pairs, with any
T5, BART or PEGASUS (`google/flan-t5-large`, say), or a decoder-only model (Llama, Mistral, Qwen, Gemma); with
`--config.shots=8` nothing is tuned, and eight answered examples precede each pair.
`--config=configs/judge.py:checkpoint=toy` needs no files: it trains a tiny T5 on template pairs that begin with a
question word, freezes it, and tunes a prompt that replaces the question word; minutes on two CPU cores.
"""

from ml_collections import ConfigDict

from configs.arguments import parse


def get_config(argument: str = "") -> ConfigDict:
    given = parse(argument, "configs/judge.py", checkpoint="", pairs="")
    c = ConfigDict()
    c.compilation_cache = "~/.cache/eeg2text_jax"  # compiled programs are kept here between runs; empty: nowhere
    c.checkpoint = given.checkpoint  # folder or Hub name of a language model; toy: a tiny model that is trained first
    c.dtype = "float32"  # of the computation
    c.param_dtype = "float32"  # in which frozen weights are kept; prompt and optimizer are float32
    # A file of labelled pairs (.tsv, .csv); edits: controlled edits of `sentences`; templates: the toy's template pairs
    c.pairs = given.pairs
    # A second file of labelled pairs, for testing only, such as conversations; `pairs` with a reference that is also in
    # this file are not used for training and dev
    c.test = ""
    c.sentences = ""  # text file, one sentence per line, for controlled edits; empty: sentences of the package
    c.wording = "auto"  # plain | figure (the paper's wording) | auto: figure if the tokenizer has braces, else plain
    c.labels = ("yes", "no")  # the model's answers: meaning preserved, meaning lost
    # In tables by speaker, transcripts without an error count as preserved; exclude: they are left out
    c.exact = "preserved"
    c.truncate = False  # cut both texts of pairs that are too long for the model; False: refuse such pairs
    c.encoder = "minilm"  # text encoder of the baselines: a checkpoint; own: the judge's encoder; empty: no baselines
    c.bertscore_encoder = ""  # text encoder of the BERTScore baseline; empty: `encoder`
    c.seeds = (0, 1, 2)  # seeds of initial prompts; one arm for each seed and learning rate, all in one program

    # Few-shot prompting: number of answered train pairs, drawn for each seed, that precede each pair; 0: tune prompts
    c.shots = 0

    c.prompt = ConfigDict()
    c.prompt.length = 5  # number of vectors before the text
    c.prompt.init = "vocabulary"  # vocabulary | labels | uniform
    c.prompt.population = 5000  # the most frequent tokens, among which initial vectors are drawn
    c.prompt.dropout = 0.0  # in the frozen layers while tuning

    c.optim = ConfigDict()
    c.optim.name = "adafactor"  # adamw | adafactor | sgd
    c.optim.lr = (0.1,)  # peak learning rates; one arm for each rate and seed
    c.optim.schedule = "linear"  # constant | linear | cosine | step
    c.optim.warmup_steps = 500
    c.optim.decay_every = 1000  # steps between drops of the learning rate under "step"
    c.optim.decay_rate = 0.1  # each drop multiplies the learning rate by this factor
    c.optim.weight_decay = 1e-5
    c.optim.momentum = 0.9  # of sgd
    c.optim.grad_clip = 0.0  # norm of a prompt's gradient; 0: none

    c.batch = ConfigDict()
    c.batch.size = 16  # pairs, the same for all arms
    c.batch.widths = (64, 96, 128, 192, 512)  # tokens of a pair without the prompt; each width is compiled once
    # Most tokens that a device computes together, over all its arms that run in parallel; larger batches (of long
    # pairs) are computed in micro-batches. 0: no limit
    c.batch.at_once = 8192

    c.train = ConfigDict()
    c.train.steps = 10_000  # number of batches; every arm is trained on all of them
    c.train.eval_every = 100  # steps between evaluations on dev; the best prompt is kept
    c.train.save_every = 500  # steps between checkpoints

    c.model = ConfigDict()
    c.model.remat = True  # to save memory, recompute each layer in the backward pass instead of storing its results
    # With remat, still store the results of matrix products ("products"), or only the input of each layer ("nothing")
    c.model.keep = "products"

    c.split = ConfigDict()
    c.split.ratio = (0.6, 0.2, 0.2)  # train, dev, test, by ground truth
    c.split.seed = 0

    c.threshold = ConfigDict()
    c.threshold.precision = 0.9  # the lowest threshold with this precision on dev decides what counts as preserved

    c.edits = ConfigDict()  # controlled edits
    c.edits.per_sentence = 2  # pairs of each sentence
    c.edits.preserved = 0.43  # share of pairs that keep the meaning
    c.edits.speakers = 10  # made-up speakers, each with its own rates of harmless and of breaking edits
    c.edits.seed = 0

    c.toy = ConfigDict()  # the toy: a T5 trained on template pairs
    c.toy.width = 64
    c.toy.layers = 2  # of the encoder, and of the decoder
    c.toy.steps = 1500
    c.toy.batch_size = 64
    c.toy.lr = 2e-3
    c.toy.pairs = 2000  # template pairs for tuning, dev and test
    c.toy.seed = 0

    c.parallel = ConfigDict()
    # How a device computes its arms: in parallel (vmap), one after the other (map); auto: map on a single CPU device
    c.parallel.arms = "auto"
    # Devices along the arms and along the batch; 0: chosen, as many as fit along the arms, or with fsdp along the batch
    c.parallel.mesh = (0, 0)
    c.parallel.fsdp = False  # divide the frozen weights over the devices along the batch, for FLAN-T5 XXL say
    if given.checkpoint == "toy":
        toy(c)
    return c


def toy(c: ConfigDict) -> None:
    """Set the fields that differ for the toy."""
    c.pairs = c.pairs or "templates"
    c.model.remat = False
    c.encoder = "own"
    c.prompt.population = 40  # tokens of template pairs, which do not contain the question words
    c.optim.lr = (0.1, 0.3)
    c.optim.warmup_steps = 50
    c.batch.widths = (32,)
    c.batch.size = 32
    c.train.steps = 600
    c.train.eval_every = 50
    c.train.save_every = 100
