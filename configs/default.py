"""Every field of a configuration, one comment each: the only home of defaults.

Other files start from this one and change what differs. Override single fields on the command line:
`eeg2text run --config=configs/demo.py --config.train.steps=200`.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    c = ConfigDict()
    c.seed = 0  # everything random derives from it, except what has a seed of its own
    # What is trained: "generate", a model that writes the sentence; "contrastive", an encoder whose output is close to
    # an embedding of the sentence, by which the sentence is found among those of the test part.
    c.objective = "generate"
    c.compilation_cache = "~/.cache/eeg2text_jax"  # compiled programs are kept here between runs; empty: nowhere

    c.data = ConfigDict()
    # "synthetic", "synthetic-fmri", a data file (.h5), a table (.tsv, .csv), arrays (.npz), Parquet files or a data set
    # saved by `datasets`, raw recordings that MNE reads, a BIDS folder of EEG or fMRI, or ZuCo's: a file, a folder or a
    # glob
    c.data.source = "synthetic"
    c.data.max_words = 56  # longer recordings are cut to this many words
    c.data.standardize = True  # each feature by its mean and standard deviation over the train part

    c.data.synthetic = ConfigDict()  # used when data.source is "synthetic"
    c.data.synthetic.signal = 1.0  # how much of the features is about the word, 0 (nothing) to 1
    c.data.synthetic.sentences = 2400  # distinct sentences
    c.data.synthetic.subjects = 2  # every subject reads every sentence
    c.data.synthetic.tasks = 2  # sentences are dealt out to the tasks in turn
    c.data.synthetic.features = 64  # F
    c.data.synthetic.vocabulary = 300  # distinct words
    c.data.synthetic.groups = 1  # kinds of sentences, each with words of its own
    c.data.synthetic.order = "random"  # in which they are read: random | blocks (of one group each) | same_for_all
    c.data.synthetic.drift = 0.0  # standard deviation of a slow drift, beside features of variance about 1
    c.data.synthetic.seed = 0

    c.data.synthetic_fmri = ConfigDict()  # used when data.source is "synthetic-fmri"; read as data.fmri says
    c.data.synthetic_fmri.signal = 1.0  # how much of the patterns is about the word, 0 (nothing) to 1
    c.data.synthetic_fmri.subjects = 12
    c.data.synthetic_fmri.stories = 24
    c.data.synthetic_fmri.heard = 12  # stories of each subject, a scan each
    c.data.synthetic_fmri.frames = 60  # of a story, 1.5 s each and about a word
    c.data.synthetic_fmri.grid = (16, 16, 8)  # voxels, in place of data.fmri.grid
    c.data.synthetic_fmri.vocabulary = 100  # distinct words
    c.data.synthetic_fmri.groups = 1  # scenes of a story, each with words of its own
    c.data.synthetic_fmri.drift = 0.0  # standard deviation of a slow drift of a scan, beside patterns of size about 1
    c.data.synthetic_fmri.lag_tr = 3  # frames from a word to its pattern; data.fmri.lag_tr undoes it
    c.data.synthetic_fmri.seed = 0
    c.data.synthetic_fmri.folder = ""  # where the BIDS tree is left; empty: it is removed once it is read

    # Names of columns in the header of a table, of arrays, Parquet files and data sets; all but features and sentence
    # may be absent.
    c.data.columns = ConfigDict()
    c.data.columns.features = "features"  # [words, features] or [features] a row; a table has numeric columns instead
    c.data.columns.sentence = "sentence"  # column of the texts
    c.data.columns.subject = "subject"  # column of who read
    c.data.columns.task = "task"  # column of the task
    c.data.columns.sentence_index = "sentence_index"  # equal for all who read the sentence; default: by its text
    c.data.columns.word = "word"  # of a table with a line a word
    c.data.columns.mask = "mask"  # [N, W] of padded arrays, True at real words
    # When a sample was recorded: one run of the subject (by default subject and task), and in it onset and duration in
    # seconds, or the place in the order.
    c.data.columns.recording = "recording"
    c.data.columns.onset = "onset"
    c.data.columns.duration = "duration"
    c.data.columns.order = "order"
    c.data.columns.features_are = ""  # what the features mean, for the record

    c.data.table = ConfigDict()  # used when data.source is a table
    c.data.table.word_column = 0  # column of the word, where no header names one
    c.data.table.feature_columns = ()  # columns of the features, e.g. (18, 19); empty: all numeric ones
    c.data.table.features_are = ""  # what the columns mean, for the record

    c.data.recordings = ConfigDict()  # used when data.source is recordings (ZuCo's .mat files, Wang & Ji's pickles)
    c.data.recordings.measure = "GD"  # which of a word's EEG: GD | FFD | TRT | SFD | GPT
    c.data.recordings.bands = ("t1", "t2", "a1", "a2", "b1", "b2", "g1", "g2")  # in the order of the features
    c.data.recordings.non_words = "keep"  # keep | skip tokens without a letter or digit
    c.data.recordings.zscore = True  # standardize each word by its own mean and standard deviation (ddof 1)
    c.data.recordings.compat = ""  # "wang-ji": build samples as their code does, quirks included
    c.data.recordings.exclude = ("YMH",)  # subjects left out; YMH is incomplete
    c.data.recordings.task = ""  # SR | NR | TSR | NRv2 | TSRv2, of pickles whose names do not tell
    c.data.recordings.strict = False  # stop at a file that cannot be read; else it is named and left out

    # Used when data.source is recordings that MNE reads (EDF, BDF, BrainVision, EEGLAB, FIF, CNT) or a BIDS folder.
    # Events come from a table NAME_events.tsv beside each recording, or else are its own annotations.
    c.data.raw = ConfigDict()
    # Code of the events that begin a sentence, `*` for anything ("sentence/*": the rest is the text); empty: all events
    # that have a text, of annotations those that last.
    c.data.raw.begin = ""
    c.data.raw.skip = ()  # codes of events that are no sentences ("Fixation cross"), `*` for anything
    c.data.raw.end = ""  # code of the events that end one; empty: it ends after its duration
    c.data.raw.text = "text"  # column of the sentences' texts, in the table of events or that of texts
    c.data.raw.texts = ""  # table of texts by `trial` (from 1) or `code`, and `subject`, `session`, `task`, `run`
    c.data.raw.word = ""  # code of the events that begin a word or fixation, one EEG position each; empty: windows
    c.data.raw.names = ""  # regular expression with groups subject, task, run for names that are not those of BIDS
    c.data.raw.task = ""  # of recordings whose names do not tell; empty: "reading"
    c.data.raw.channels = ()  # names of the channels to take; empty: all of EEG
    c.data.raw.exclude = ()  # names of channels to leave out
    # One of MNE's standard montages ("easycap-M1"), where recordings have no positions of electrodes; empty: none.
    c.data.raw.montage = ""
    c.data.raw.units = ""  # V | mV | uV | nV, of channels without a unit of their own; empty: these are refused
    c.data.raw.reference = "average"  # as ZuCo's; names of channels with commas between; empty: as recorded
    # Filters before the bands, in Hz; 0: none, as each band is a filter of its own (all are Butterworth, order 4, forth
    # and back, as in MNE's method "iir").
    c.data.raw.highpass = 0.0
    c.data.raw.lowpass = 0.0
    c.data.raw.notch = 0.0
    c.data.raw.resample = 0.0  # samples a second; 0: as recorded; fewer are faster
    # From and to, in Hz: theta, alpha, beta and gamma in two each, those of ZuCo (Hollenstein et al. 2018).
    c.data.raw.bands = ((4.0, 6.0), (6.5, 8.0), (8.5, 10.0), (10.5, 13.0), (13.5, 18.0), (18.5, 30.0), (30.5, 40.0),
                        (40.0, 49.5))  # fmt: skip
    c.data.raw.amplitude = False  # the amplitude, as in ZuCo's own files, instead of its square, the power
    c.data.raw.log = True  # log10 of the power, whose distribution is near a normal one (Gasser et al. 1982)
    c.data.raw.window = 0.5  # seconds of an EEG position where words have no times: two periods of 4 Hz
    c.data.raw.step = 0.5  # seconds from one to the next
    c.data.raw.margin = 2.0  # seconds read before and after a sentence, in which filters settle
    c.data.raw.strict = False  # stop at a file that cannot be read; else it is named and left out

    # Used when data.source is a BIDS folder with functional images, as Narratives (docs/fmri.md).
    c.data.fmri = ConfigDict()
    c.data.fmri.transcripts = ""  # folder with STIMULUS/align.csv, as gentle writes it; empty: stimuli/gentle there
    c.data.fmri.tasks = ()  # those to take; empty: all
    c.data.fmri.grid = (64, 64, 27)  # voxels of the scans to take; others are not looked at
    c.data.fmri.exclude = "code/scan_exclude.json"  # list of scans to leave out, where it is there; empty: none
    c.data.fmri.runs = "first"  # first | all runs of a subject and task
    c.data.fmri.window = 10  # L, frames of a sample and segments of its text; UniCoRN's
    c.data.fmri.stride = 1  # frames from one window to the next; 1: all windows, as many as there can be
    # TRs by which a frame comes after the words that it belongs to; the blood takes 3 or 4 of 1.5 s. UniCoRN's authors
    # name none, so 0.
    c.data.fmri.lag_tr = 0
    c.data.fmri.detrend = 0  # degree of the polynomial taken off every voxel's run; 0: its mean (no source says)
    c.data.fmri.clip = 5.0  # standard deviations at which values are cut
    c.data.fmri.mask = 0.0  # voxels whose mean is below this share of the 98th percentile are 0; 0: no mask
    c.data.fmri.dtype = "float16"  # of the voxels in the data file: float16 | float32
    # Stimuli that tell the same story: a split by text keeps them together.
    c.data.fmri.same_text = (
        ("notthefallintact", "notthefalllongscram", "notthefallshortscram"),
        ("milkywayoriginal", "milkywayvodka", "milkywaysynonyms"),
        ("pieman", "piemanpni"),
    )
    c.data.fmri.strict = False  # stop at a scan that cannot be used; else it is named and left out

    c.split = ConfigDict()
    # unique_text (no text of the test part trains), f (no subject either); file (see path); and the published ones that
    # leak: unique_sent, unique_subj, a (by subject), b (by task), c (pooled), d (by sentence id within a task), e (one
    # run of consecutive samples of each task). Windows of stories are split by story in unique_text, b and f.
    # blocks: contiguous stretches of each recording, with texts of their own and a gap in time between parts.
    c.split.method = "unique_text"
    c.split.ratio = (0.8, 0.1, 0.1)  # train, dev, test
    c.split.seed = 0
    c.split.path = ""  # certificate or split file of method "file"
    c.split.gap = 0.0  # of blocks: seconds left out between parts (places in the order, where onsets are not known)
    c.split.unique_subjects = False  # of blocks: no subject of the test part trains

    c.text = ConfigDict()
    c.text.tokenizer = ""  # Hugging Face folder; empty: the checkpoint's, or a byte-pair one trained on train
    c.text.vocab_size = 900  # of the trained one
    c.text.max_tokens = 56  # targets are cut to this many tokens, the end token among them
    # Prompt of a decoder-only model: a text with <eeg> where the recording goes, and {subject} or {task} where a
    # sample's own go; empty: the recording alone.
    c.text.template = ""
    c.text.chat = False  # the template is what a user says, in the tokenizer's own chat template

    c.batch = ConfigDict()
    # (EEG positions, target tokens) of a batch: a sample takes the first pair that holds it; one compilation each.
    # Decoding, which knows no targets, uses the positions alone.
    c.batch.buckets = ((16, 24), (28, 40), (56, 56))
    c.batch.size = 32  # global batch size

    c.model = ConfigDict()
    # bart | pegasus | t5 | bert2bert, or decoders alone: llama | mistral | qwen2 | qwen3 | gemma | gemma2 | gemma3
    c.model.backbone = "bart"
    c.model.checkpoint = ""  # folder or Hub name with pretrained weights; empty: random weights of model.shape
    c.model.dtype = "float32"  # of the computation; parameters, loss and softmax are float32
    c.model.shape = ConfigDict()  # Hugging Face configuration fields of a backbone with random weights
    # Of the brain: "transformer" (the paper's), "unicorn" (see model.unicorn and pretrain), "lstm" (bidirectional, as
    # the R1 Translator's), "none" (the authors' naive model: the bridge alone; as "transformer" with no layers).
    c.model.encoder = "transformer"
    c.model.encoder_layers = 6
    c.model.encoder_heads = 8  # of the transformer's attention
    c.model.encoder_ffn = 2048
    # Features are projected to this width first; 0: width F, padded so heads divide it; of "lstm": units a direction;
    # of "unicorn" 0 is the width of the language model.
    c.model.encoder_width = 0
    c.model.dropout = 0.1  # of the brain encoder; the backbone has its own in its configuration
    # What no source says of UniCoRN: all of it is ours (the abstract has a snapshot encoder, a transformer, a bridge).
    c.model.unicorn = ConfigDict()
    c.model.unicorn.channels = (16, 32, 64, 128)  # a convolution each, which halves a volume: 64x64x27 -> 4x4x2
    c.model.unicorn.hidden = 1024  # units of the hidden layer of a word's features
    c.model.unicorn.activation = "gelu"  # gelu | relu
    c.model.unicorn.positions = "sinusoidal"  # of the snapshots in their series: sinusoidal | none
    c.model.unicorn.bridge = "linear"  # linear | relu, which the paper's EEG encoder has
    c.model.remat = False  # compute each layer again in the backward pass instead of keeping what it computed ...
    c.model.keep = "products"  # ... but for its matrix products ("products"), or for its input alone ("nothing")
    c.model.prompt = ""  # text whose embeddings go before the EEG positions
    c.model.lora = ConfigDict()  # adapters of the language model, with optim.trainable "lora" (Hu et al. 2022)
    c.model.lora.rank = 16
    c.model.lora.alpha = 32.0  # what they compute is multiplied by alpha / rank
    c.model.lora.dropout = 0.05
    # Projections that have one: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj.
    c.model.lora.targets = ("q_proj", "v_proj")
    # Of a frozen language model, which is in memory once for all arms: bfloat16 | float32 | int8 (its kernels).
    c.model.frozen_dtype = "bfloat16"

    c.grid = ConfigDict()
    c.grid.train_conditions = ("eeg", "noise")  # one arm each ...
    c.grid.seeds = (0,)  # ... times one per training seed
    c.grid.eval_conditions = ("eeg", "noise")  # what each arm is tested with
    # Of those, the controls that the EEG must beat: all that take the words' features away. time_reversed and
    # phase_randomized keep features of the words, so a decoder that needs no order would never beat them: they ask
    # questions of their own. Where an arm is tested with none of these, all of its controls decide.
    c.grid.controls = (
        "noise",
        "noise_redrawn",
        "noise_uniform",
        "zero",
        "shuffled",
        "subject_mean",
        "length_only",
        "prompt_only",
    )

    c.optim = ConfigDict()
    c.optim.name = "adamw"  # adamw | adafactor | sgd
    # "all"; "bridge", the EEG encoder and its bridge, with the language model frozen; "lora", adapters of it, too; or
    # "first", what the authors' step one updates (see step_one, which sets it).
    c.optim.trainable = "all"
    c.optim.lr = 1e-3  # peak learning rate
    c.optim.schedule = "cosine"  # constant | linear | cosine | geometric | step
    c.optim.lr_end = (
        0.0  # what linear, cosine and geometric decay to, the last step's rate; geometric needs one above 0
    )
    c.optim.decay_every = 1000  # steps between drops of the step schedule ...
    c.optim.decay_epochs = 0  # ... or epochs ...
    c.optim.decay_rate = 0.1  # ... and their factor
    c.optim.warmup_steps = 100
    c.optim.weight_decay = 0.01
    c.optim.momentum = 0.9  # of sgd
    c.optim.grad_clip = 1.0  # global norm of one arm's gradient; 0: none

    c.train = ConfigDict()
    # Lengths are steps, or epochs of the split's own train part: where the epochs are not 0, they count, and the steps
    # are derived when the run opens. An epoch has each sample once and fills up its last batch.
    c.train.steps = 1000  # batches; every arm sees all of them ...
    c.train.epochs = 0  # ... or epochs
    c.train.eval_every = 100  # steps between losses on dev; the best one's parameters are decoded ...
    c.train.eval_epochs = 0  # ... or epochs
    c.train.patience = 0  # so many losses on dev in a row, none lower than before in any arm, end training; 0: never
    c.train.save_every = 100  # steps between checkpoints ...
    c.train.save_epochs = 0  # ... or epochs
    c.train.log_every = 20  # steps between lines in metrics.jsonl
    c.train.tracker = ""  # "wandb" or "trackio", ":PROJECT" behind it if you like: curves there too; empty: nowhere
    c.train.profile = ""  # "START:END": a profile of these steps in DIR/profile, which XProf opens; empty: none
    c.train.label_smoothing = 0.0
    c.train.accumulate = 1  # microbatches that a batch is computed in, one after the other: less memory, same gradient
    # Generator of dropout. "rbg" is cheaper on TPU; its masks depend on the backend.
    c.train.rng = "threefry"

    c.step_one = ConfigDict()  # a training before the training, in which optim.trainable is "first"
    c.step_one.steps = 0  # batches of it; its best parameters are what train begins with; 0: there is none ...
    c.step_one.epochs = 0  # ... or epochs
    c.step_one.lr = 1e-3  # in place of optim.lr

    # Trainings before the text, of model.encoder "unicorn": it reconstructs what it is fed, first single snapshots (a
    # volume, or a word's features), then series of them, with a mirror that is thrown away. Arms are those of the grid:
    # the noise arm reconstructs noise. The optimizer is optim's, but for what stands here.
    c.pretrain = ConfigDict()
    c.pretrain.enabled = False  # False: the encoder is random when the text begins, which is UniCoRN* in the papers
    c.pretrain.loss = "mae"  # mae | mse; no source says which
    c.pretrain.mask = False  # judge by the voxels that vary over the train part alone, as inside of a brain mask
    c.pretrain.freeze_snapshot = False  # train the transformer alone in the second stage
    c.pretrain.freeze_encoder = False  # train all but the brain encoder with the text; its bridge is always trained
    c.pretrain.snapshot = ConfigDict()
    c.pretrain.snapshot.steps = 1000  # batches; 0: no such stage ...
    c.pretrain.snapshot.epochs = 0  # ... or epochs of batches of batch_size
    c.pretrain.snapshot.batch_size = 32  # samples (sentences or windows), with all snapshots of each
    c.pretrain.snapshot.lr = 1e-3
    c.pretrain.snapshot.lr_end = 1e-6
    c.pretrain.snapshot.schedule = "linear"  # "decaying to 1e-6" is all that is said
    c.pretrain.snapshot.warmup_steps = 0
    c.pretrain.snapshot.eval_every = 100
    c.pretrain.snapshot.eval_epochs = 0
    c.pretrain.snapshot.patience = 0
    c.pretrain.series = ConfigDict()  # the same fields
    c.pretrain.series.steps = 1000
    c.pretrain.series.epochs = 0
    c.pretrain.series.batch_size = 32
    c.pretrain.series.lr = 1e-3
    c.pretrain.series.lr_end = 1e-6
    c.pretrain.series.schedule = "linear"
    c.pretrain.series.warmup_steps = 0
    c.pretrain.series.eval_every = 100
    c.pretrain.series.eval_epochs = 0
    c.pretrain.series.patience = 0
    # Share of the snapshots that are hidden from the encoder in the second stage, which alone are then judged. With 0,
    # as in the paper, the transformer may hand each snapshot on as it is.
    c.pretrain.series.hidden = 0.0

    c.contrastive = ConfigDict()  # of objective "contrastive"
    # Frozen text encoder (a checkpoint, or minilm) whose embeddings are the targets; empty: hashed tf-idf of words.
    c.contrastive.text = ""
    c.contrastive.layer = -1  # whose output is averaged over tokens; -1: at two thirds of the depth
    c.contrastive.hashed = 512  # numbers of a hashed tf-idf vector
    c.contrastive.width = 256  # of what the EEG encoder hands to the mean over words
    c.contrastive.temperature = 0.07  # that cosines are divided by ...
    c.contrastive.learn_temperature = True  # ... at first; one over it never exceeds 100
    c.contrastive.symmetric = True  # also find the recording of each text among those of the batch

    c.parallel = ConfigDict()
    # Arms of one device: side by side ("vmap") or in turn ("map", faster for small models on a CPU); "auto" maps on a
    # single CPU device.
    c.parallel.arms = "vmap"
    c.parallel.mesh = (0, 0)  # devices along the arms and along the batch; 0: chosen, arms first
    c.parallel.fsdp = False  # divide the parameters over the devices of the batch, too, instead of copying them
    c.parallel.wave = 0  # arms trained at the same time, the others after them; 0: all that fit into memory
    c.parallel.hosts = "one"  # "auto": the cluster that JAX finds (TPU slice, Slurm); "env": EEG2TEXT_COORDINATOR, ...
    c.parallel.startup = 300  # seconds in which all hosts must have come
    c.parallel.heartbeat = 12  # seconds without a sign of life after which a host counts as lost, and the others end

    c.decode = ConfigDict()  # free-running decoding; fields of GenerationSpec
    c.decode.num_beams = 5  # hypotheses kept at each step; 1: greedy
    c.decode.max_length = 56  # tokens of a text at most
    c.decode.repetition_penalty = 5.0  # divides the scores of tokens that the text has already; 1: none
    c.decode.no_repeat_ngram_size = 2  # no run of so many tokens occurs twice in a text; 0: any may
    c.decode.length_penalty = 1.0  # above 0 favours long texts, below 0 short ones
    c.decode.num_return_sequences = 1  # texts of each sentence, best first; the first is scored, all are written
    c.decode.do_sample = False  # draw what comes next; with beams, their continuations, without replacement
    c.decode.temperature = 1.0  # these three matter only with do_sample
    c.decode.top_k = 50  # draw among so many tokens; 0: all
    c.decode.top_p = 1.0  # draw among the most probable tokens that hold this much together
    # Less to move at each step, for other rounding (docs/speed.md has its effect on tokens); "": model.dtype.
    c.decode.cache_dtype = ""  # of keys and values between steps: "bfloat16" or "float32"
    # "int8": the matrices of the language model, and the activations that they are multiplied with.
    c.decode.weights_dtype = ""
    # Divide a frozen language model over the devices of an arm, which decode a batch together; for models that do not
    # fit one device. Sums are then rounded in another order.
    c.decode.tensor_parallel = False
    c.decode.batch_size = 32  # sentences decoded at once
    # How often decoding goes on with half of the batch once the other half is done: each compiles one more loop, and
    # pays where a step costs by the row, as on a CPU.
    c.decode.compactions = 0
    # Where teacher-forced predictions end: at the first end token among the argmax tokens ("authors", who take all
    # text.max_tokens positions and so run into the padding where the model misses the end), or at the end of the
    # reference at the latest ("reference").
    c.decode.teacher_forced_cut = "reference"

    c.retrieval = ConfigDict()  # which of the sentences of the test part was read
    c.retrieval.likelihood = False  # of objective "generate": rank them by their likelihood, too
    c.retrieval.endpoint = "top-5"  # what decides: top-1 | top-5 | rank
    c.retrieval.margin = 0.0  # points below which a difference does not matter; 0: 3, of top-1 2

    c.metrics = ConfigDict()  # scores besides those on words
    c.metrics.names = ()  # of bertscore, similarity, lattescore
    c.metrics.encoder = ""  # of the first two: a checkpoint, or minilm
    c.metrics.layer = -1  # whose output bertscore compares; -1: the best one known
    c.metrics.judge = ""  # of lattescore: the folder DIR/judge of `eeg2text judge`

    c.audit = ConfigDict()  # of the EEG arms, against every other evaluation condition
    c.audit.endpoint = "bleu-1"  # what decides: bleu-1 | bertscore-f | similarity | lattescore-mean
    c.audit.secondary = ()  # endpoints that are computed, too
    c.audit.margin = 0.0  # points of it below which a difference in content does not matter; 0: its own one
    c.audit.resamples = 10_000  # permutations and bootstrap draws
    c.audit.seed = 0

    return c
