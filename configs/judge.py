"""The judge behind LATTEScore: a soft prompt on a frozen language model. Every field, and the only home of defaults.

`eeg2text judge --config=configs/judge.py:checkpoint=DIR,pairs=FILE.tsv --workdir=DIR` tunes on labelled pairs, with any
T5, BART or PEGASUS (`google/flan-t5-large`, say), or a decoder-only model (Llama, Mistral, Qwen, Gemma); with
`--config.shots=8` nothing is tuned and eight answered examples stand before each pair.
`--config=configs/judge.py:checkpoint=toy` needs nothing: it trains a tiny T5 on template pairs, freezes it, and tunes a
prompt in place of its question word; minutes on two CPU cores.
"""

from ml_collections import ConfigDict

from configs.arguments import parse


def get_config(argument: str = "") -> ConfigDict:
    given = parse(argument, "configs/judge.py", checkpoint="", pairs="")
    c = ConfigDict()
    c.compilation_cache = "~/.cache/eeg2text_jax"  # compiled programs are kept here between runs; empty: nowhere
    c.checkpoint = given.checkpoint  # folder or Hub name of a language model; toy: one that is trained first
    c.dtype = "float32"  # of the computation
    c.param_dtype = "float32"  # in which frozen weights are kept; prompt and optimizer are float32
    # A file of labelled pairs (.tsv, .csv); edits: controlled edits of `sentences`; templates: those of the toy
    c.pairs = given.pairs
    c.test = ""  # a second file of labelled pairs to test with, as of conversations; its references train nothing
    c.sentences = ""  # what controlled edits are made of: a text file, a line each; empty: sentences in the package
    c.wording = "auto"  # plain | figure, as the paper prints it; auto: the latter where the tokenizer knows braces
    c.labels = ("yes", "no")  # what the model answers
    c.exact = "preserved"  # transcripts without an error count as preserved; exclude: they do not count
    c.truncate = False  # cut both texts of pairs that are longer than the model takes; else they are refused
    c.encoder = "minilm"  # of the baselines: a checkpoint; own: the judge's encoder; empty: no baselines
    c.bertscore_encoder = ""  # of the BERTScore baseline; empty: `encoder`
    c.seeds = (0, 1, 2)  # of initial prompts; one arm for each seed and learning rate, all in one program

    # Few-shot: so many answered pairs of train, drawn by each seed, before each pair, and no tuning; 0: tune prompts
    c.shots = 0

    c.prompt = ConfigDict()
    c.prompt.length = 5  # vectors before the text
    c.prompt.init = "vocabulary"  # vocabulary | labels | uniform
    c.prompt.population = 5000  # the most frequent tokens, among which initial vectors are drawn
    c.prompt.dropout = 0.0  # in the frozen layers while tuning

    c.optim = ConfigDict()
    c.optim.name = "adafactor"  # adamw | adafactor | sgd
    c.optim.lr = (0.1,)  # peaks, an arm each
    c.optim.schedule = "linear"  # constant | linear | cosine | step
    c.optim.warmup_steps = 500
    c.optim.decay_every = 1000  # steps between drops of the step schedule ...
    c.optim.decay_rate = 0.1  # ... and their factor
    c.optim.weight_decay = 1e-5
    c.optim.momentum = 0.9  # of sgd
    c.optim.grad_clip = 0.0  # norm of a prompt's gradient; 0: none

    c.batch = ConfigDict()
    c.batch.size = 16  # pairs, the same for all arms
    c.batch.widths = (64, 96, 128, 192, 512)  # tokens of a pair without the prompt; a compilation each
    # Tokens that a device computes together, of all its arms side by side; larger batches (of wide buckets) are
    # computed in pieces. 0: no limit
    c.batch.at_once = 8192

    c.train = ConfigDict()
    c.train.steps = 10_000  # batches; every arm sees all of them
    c.train.eval_every = 100  # steps between looks at dev; the best prompt is kept
    c.train.save_every = 500  # steps between checkpoints

    c.model = ConfigDict()
    c.model.remat = True  # compute each layer again in the backward pass instead of keeping what it computed ...
    c.model.keep = "products"  # ... but for its matrix products ("products"), or for its input alone ("nothing")

    c.split = ConfigDict()
    c.split.ratio = (0.6, 0.2, 0.2)  # train, dev, test, by ground truth
    c.split.seed = 0

    c.threshold = ConfigDict()
    c.threshold.precision = 0.9  # on dev; the lowest threshold that reaches it decides what is preserved

    c.edits = ConfigDict()  # controlled edits
    c.edits.per_sentence = 2  # pairs of each sentence
    c.edits.preserved = 0.43  # share of pairs that keep the meaning
    c.edits.speakers = 10  # made-up ones, with edits and breaks of their own
    c.edits.seed = 0

    c.toy = ConfigDict()  # the toy: a T5 trained on template pairs
    c.toy.width = 64
    c.toy.layers = 2  # of each side
    c.toy.steps = 1500
    c.toy.batch_size = 64
    c.toy.lr = 2e-3
    c.toy.pairs = 2000  # template pairs for tuning, dev and test
    c.toy.seed = 0

    c.parallel = ConfigDict()
    c.parallel.arms = "auto"  # vmap: side by side; map: in turn; auto: in turn on a single CPU device
    # Devices along the arms and along the batch; 0: chosen, arms first, or with fsdp the batch first
    c.parallel.mesh = (0, 0)
    c.parallel.fsdp = False  # divide the frozen weights over the devices along the batch, for FLAN-T5 XXL say
    if given.checkpoint == "toy":
        toy(c)
    return c


def toy(c: ConfigDict) -> None:
    """What differs for the toy."""
    c.pairs = c.pairs or "templates"
    c.model.remat = False
    c.encoder = "own"
    c.prompt.population = 40  # without the question words, which template pairs do not have
    c.optim.lr = (0.1, 0.3)
    c.optim.warmup_steps = 50
    c.batch.widths = (32,)
    c.batch.size = 32
    c.train.steps = 600
    c.train.eval_every = 50
    c.train.save_every = 100
