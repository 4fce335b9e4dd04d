"""Every field of a configuration, one comment each: the only home of defaults.

Other files start from this one and change what differs. Override single fields on the command line:
`eeg2text run --config=configs/demo.py --config.train.steps=200`.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    c = ConfigDict()
    c.seed = 0  # everything random derives from it, except what has a seed of its own
    # "generate": train a model that writes the sentence. "contrastive": train an encoder whose output is close to the
    # embedding of the sentence; the sentence is then found among all sentences of the test part.
    c.objective = "generate"
    c.compilation_cache = "~/.cache/eeg2text_jax"  # compiled programs are kept here between runs; empty: nowhere

    c.data = ConfigDict()
    # "synthetic", "synthetic-fmri", or a file, a folder or a glob: a data file (.h5), a table (.tsv, .csv), arrays
    # (.npz), Parquet files, a data set saved by `datasets`, raw recordings that MNE reads, a BIDS folder of EEG or of
    # fMRI, ZuCo's files
    c.data.source = "synthetic"
    c.data.max_words = 56  # samples with more EEG positions (words) are cut to this number
    c.data.standardize = True  # each feature by its mean and standard deviation over the train part

    c.data.synthetic = ConfigDict()  # used when data.source is "synthetic"
    c.data.synthetic.signal = 1.0  # how much of the features is about the word, 0 (nothing) to 1
    c.data.synthetic.sentences = 2400  # distinct sentences
    c.data.synthetic.subjects = 2  # every subject reads every sentence
    c.data.synthetic.tasks = 2  # sentences are dealt out to the tasks in turn
    c.data.synthetic.features = 64  # features of a word (F)
    c.data.synthetic.vocabulary = 300  # distinct words
    c.data.synthetic.groups = 1  # kinds of sentences, each with words of its own
    # Order in which sentences are read: random | blocks (one group after the other) | same_for_all (one random order
    # for all subjects)
    c.data.synthetic.order = "random"
    c.data.synthetic.drift = 0.0  # standard deviation of a slow drift that is added to features of variance about 1
    c.data.synthetic.seed = 0

    c.data.synthetic_fmri = ConfigDict()  # used when data.source is "synthetic-fmri"; data.fmri says how it is read
    c.data.synthetic_fmri.signal = 1.0  # how much of the patterns is about the word, 0 (nothing) to 1
    c.data.synthetic_fmri.subjects = 12
    c.data.synthetic_fmri.stories = 24
    c.data.synthetic_fmri.heard = 12  # stories that each subject hears, one in each scan
    c.data.synthetic_fmri.frames = 60  # frames of a story; one lasts 1.5 s and has about one word
    c.data.synthetic_fmri.grid = (16, 16, 8)  # voxels along the three axes; replaces data.fmri.grid
    c.data.synthetic_fmri.vocabulary = 100  # distinct words
    c.data.synthetic_fmri.groups = 1  # scenes of a story, each with words of its own
    c.data.synthetic_fmri.drift = 0.0  # standard deviation of a slow drift in a scan, relative to the size of a pattern
    c.data.synthetic_fmri.lag_tr = 3  # frames from a word to its pattern; data.fmri.lag_tr undoes it
    c.data.synthetic_fmri.seed = 0
    c.data.synthetic_fmri.folder = ""  # folder that keeps the BIDS tree; empty: the tree is deleted after it is read

    # Names of the columns of tables, arrays, Parquet files and data sets; only features and sentence are required.
    c.data.columns = ConfigDict()
    # Column of the features; each row has [words, features] or [features]. Tables have numeric columns instead.
    c.data.columns.features = "features"
    c.data.columns.sentence = "sentence"  # column of the texts
    c.data.columns.subject = "subject"  # column of the readers' names
    c.data.columns.task = "task"  # column of the task
    # Number of the sentence, the same for all its readers; if the column is absent, equal texts get equal numbers.
    c.data.columns.sentence_index = "sentence_index"
    c.data.columns.word = "word"  # word of each line, in a table with one line per word
    c.data.columns.mask = "mask"  # [N, W] of padded arrays, True at real words
    # When a sample was recorded: `recording` names one run of a subject (by default SUBJECT/TASK), `onset` and
    # `duration` are in seconds (from the start of the run, of the day, or Unix time), `order` is the place in the run.
    c.data.columns.recording = "recording"
    c.data.columns.onset = "onset"
    c.data.columns.duration = "duration"
    c.data.columns.order = "order"
    c.data.columns.features_are = ""  # meaning of the features, stored in the data file

    c.data.table = ConfigDict()  # used when data.source is a table
    # Number of the column with the words; 0: the column `word` of the header, or the first column if the header has
    # neither `word` nor `sentence`
    c.data.table.word_column = 0
    c.data.table.feature_columns = ()  # columns of the features, e.g. (18, 19); empty: all numeric ones
    c.data.table.features_are = ""  # meaning of the columns, stored in the data file

    c.data.recordings = ConfigDict()  # used when data.source is recordings (ZuCo's .mat files, Wang & Ji's pickles)
    c.data.recordings.measure = "GD"  # gaze measure whose EEG is used: GD | FFD | TRT | SFD | GPT
    c.data.recordings.bands = ("t1", "t2", "a1", "a2", "b1", "b2", "g1", "g2")  # bands to read, in this order
    c.data.recordings.non_words = "keep"  # keep | skip tokens without a letter or digit
    c.data.recordings.zscore = True  # standardize each word by its own mean and standard deviation (ddof 1)
    c.data.recordings.compat = ""  # "wang-ji": build samples as the code of Wang & Ji does, including its quirks
    c.data.recordings.exclude = ("YMH",)  # subjects left out; YMH is incomplete
    c.data.recordings.task = ""  # task of pickles whose names do not state it: SR | NR | TSR | NRv2 | TSRv2
    c.data.recordings.strict = False  # stop at a file that cannot be read; else it is named and left out

    # Used when data.source is recordings that MNE reads (EDF, BDF, BrainVision, EEGLAB, FIF, CNT, KIT, CTF) or in BIDS.
    # Events come from a table NAME_events.tsv or .csv beside each recording; without a table, from its annotations.
    c.data.raw = ConfigDict()
    # Code of the events that begin a sentence; `*` stands for any text (in "sentence/*", for the sentence itself).
    # Empty: all events with a text; of annotations only those with a duration, unless `end` is set.
    c.data.raw.begin = ""
    c.data.raw.skip = ()  # codes of events that begin no sentence ("Fixation cross"); `*` stands for any text
    c.data.raw.end = ""  # code of the events that end a sentence; empty: a sentence ends after its duration
    c.data.raw.text = "text"  # column with the sentences, in the table of events or in the table `texts`
    # Table of the sentences by `trial` (from 1) or `code`; if texts differ between subjects, sessions, tasks or runs,
    # also with a column `subject`, `session`, `task` or `run`. Or an Excel file (.xlsx) with the texts of trials 1, 2,
    # ... row by row; `{run}` in its name stands for the number of the run.
    c.data.raw.texts = ""
    # Seconds that a sentence is shown for each of its characters; a table whose texts do not fit the events is refused.
    c.data.raw.seconds_per_character = 0.0  # 0: not known
    c.data.raw.word = ""  # code of the events that begin a word or fixation, one EEG position each; empty: windows
    # Regular expression with groups subject, task, session, run, for names of files that do not follow BIDS
    c.data.raw.names = ""
    c.data.raw.task = ""  # task of recordings whose names do not state it; empty: "reading"
    # Channels to use: names, patterns ("MEG*"), or types: eeg | mag | grad | seeg | ecog | meg | ieeg. Empty: MEG where
    # there is MEG, else sEEG and ECoG, else EEG.
    c.data.raw.channels = ()
    c.data.raw.exclude = ()  # names of channels to leave out
    # One of MNE's standard montages ("easycap-M1"), where recordings have no positions of electrodes; empty: none.
    c.data.raw.montage = ""
    c.data.raw.encoding = ""  # of annotations in EDF and BDF, such as latin1; empty: UTF-8, as the format says
    c.data.raw.units = ""  # unit of channels that state none: V | mV | uV | nV; empty: such channels are refused
    # Of EEG: "average" of all channels, as in ZuCo; or names of channels, separated by commas; empty: as recorded. MEG
    # has none. For sEEG and ECoG append "seeg:average" or "seeg:bipolar" (differences of neighbors), "ecog:...".
    c.data.raw.reference = "average"
    # Filters before the band-pass filters of the bands, in Hz; 0: none. High-pass, low-pass and band-pass filters are
    # Butterworth filters of order 4, applied forwards and backwards, as in MNE's method "iir".
    c.data.raw.highpass = 0.0
    c.data.raw.lowpass = 0.0
    c.data.raw.notch = 0.0
    c.data.raw.resample = 0.0  # samples a second; 0: as recorded; fewer are faster
    # What the features are: "power" in the bands below, of words or windows; or "waves": all samples in time of the
    # channels, after the filters above. batch.buckets and data.max_words then count samples in time.
    c.data.raw.features = "power"
    # Lowest and highest frequency of each band in Hz; by default ZuCo's, two bands each of theta, alpha, beta and gamma
    # (Hollenstein et al. 2018).
    c.data.raw.bands = ((4.0, 6.0), (6.5, 8.0), (8.5, 10.0), (10.5, 13.0), (13.5, 18.0), (18.5, 30.0), (30.5, 40.0),
                        (40.0, 49.5))  # fmt: skip
    c.data.raw.amplitude = False  # use the amplitude, as in ZuCo's own files, instead of the power (its square)
    c.data.raw.log = True  # take log10 of the power, which makes it nearly normally distributed (Gasser et al. 1982)
    c.data.raw.window = 0.5  # seconds of a window, the EEG position if `word` is empty; two periods of 4 Hz
    c.data.raw.step = 0.5  # seconds from the start of one window to the start of the next
    c.data.raw.margin = 2.0  # seconds read before and after a sentence, in which filters settle
    c.data.raw.strict = False  # stop at a file that cannot be read; else it is named and left out

    # Used when data.source is a BIDS folder with functional images, such as Narratives (docs/fmri.md).
    c.data.fmri = ConfigDict()
    c.data.fmri.transcripts = ""  # folder with gentle's STIMULUS/align.csv; empty: stimuli/gentle in the BIDS folder
    c.data.fmri.tasks = ()  # tasks to read; empty: all
    c.data.fmri.grid = (64, 64, 27)  # voxels of the scans to read; scans with another number of slices are ignored
    # JSON file with the scans to leave out; empty: none. Only the default file may be missing.
    c.data.fmri.exclude = "code/scan_exclude.json"
    c.data.fmri.runs = "first"  # first | all runs of a subject and task
    c.data.fmri.window = 10  # frames of a sample, each with one segment of the text; UniCoRN's L
    c.data.fmri.stride = 1  # frames from the start of one window to the start of the next; 1: all windows
    # TRs from the words to the frame that is paired with them. The blood response takes 3 or 4 TRs of 1.5 s; the
    # default is 0 because UniCoRN's authors mention no lag.
    c.data.fmri.lag_tr = 0
    # Degree of the polynomial that is subtracted from each voxel over its run; 0: the mean. UniCoRN's is not published.
    c.data.fmri.detrend = 0
    c.data.fmri.clip = 5.0  # values beyond this many standard deviations are clipped
    c.data.fmri.mask = 0.0  # set voxels to 0 whose mean is below this share of the means' 98th percentile; 0: no mask
    c.data.fmri.dtype = "float16"  # dtype of the voxels in the data file: float16 | float32
    # Stimuli that tell the same story: a split by text keeps them together.
    c.data.fmri.same_text = (
        ("notthefallintact", "notthefalllongscram", "notthefallshortscram"),
        ("milkywayoriginal", "milkywayvodka", "milkywaysynonyms"),
        ("pieman", "piemanpni"),
    )
    c.data.fmri.strict = False  # stop at a scan that cannot be used; else it is named and left out

    c.split = ConfigDict()
    # unique_text: no text is in two parts. f: no text and no subject is in two parts (f_prose: the same for stories by
    # the prose of its paper, which keeps less). blocks: contiguous stretches of
    # each recording, with texts of their own and a gap in time between parts. file: see path. All others are published
    # methods that leak: unique_sent, unique_subj, a (by subject), b (by task), c (pooled), d (by sentence id within a
    # task), e (in each task, one run of consecutive sentences is dev and another one is test). unique_text, b and f
    # divide windows of stories by story.
    c.split.method = "unique_text"
    c.split.ratio = (0.8, 0.1, 0.1)  # train, dev, test
    c.split.seed = 0
    c.split.path = ""  # for method "file": a certificate or another split file
    # For method "blocks": least number of seconds between parts (of samples, if onsets are not known)
    c.split.gap = 0.0
    c.split.unique_subjects = False  # for method "blocks": no subject is in two parts
    c.split.unique_sessions = False  # for method "blocks": no session (a day; else a recording) is in two parts

    c.text = ConfigDict()
    # Hugging Face folder; empty: the checkpoint's tokenizer, or a byte-pair tokenizer trained on the train part
    c.text.tokenizer = ""
    c.text.vocab_size = 900  # vocabulary size of the trained tokenizer
    c.text.max_tokens = 56  # targets are cut to this many tokens, the end token included
    # Prompt of a decoder-only model: <eeg> stands for the recording, {subject} and {task} for the subject and the task
    # of the sample; empty: the recording alone.
    c.text.template = ""
    c.text.chat = False  # insert the template as the user's message into the tokenizer's chat template

    c.batch = ConfigDict()
    # Shapes of batches, (EEG positions, target tokens): a sample goes into the first shape that holds it, and each
    # shape is compiled once. Decoding uses the numbers of EEG positions only.
    c.batch.buckets = ((16, 24), (28, 40), (56, 56))
    c.batch.size = 32  # global batch size

    c.model = ConfigDict()
    # bart | pegasus | t5 | bert2bert, or decoder-only: llama | mistral | qwen2 | qwen3 | gemma | gemma2 | gemma3
    c.model.backbone = "bart"
    c.model.checkpoint = ""  # folder or Hub name with pretrained weights; empty: random weights of model.shape
    c.model.dtype = "float32"  # dtype of the computation; parameters, loss and softmax are float32
    c.model.shape = ConfigDict()  # Hugging Face configuration fields of a backbone with random weights
    # Brain encoder: "transformer" (the paper's), "unicorn" (see model.unicorn and pretrain), "lstm" (bidirectional, as
    # in the R1 Translator), "none" (the bridge alone: the authors' naive model, equal to "transformer" with 0 layers).
    # Of waves (data.raw.features=waves): "conv" (convolutions over all channels, then a transformer over time),
    # "whisper" (the same with a Whisper's weights), "labram", "cbramod", "reve" (see model.waves).
    c.model.encoder = "transformer"
    # Pretrained encoder of waves, a folder or Hub name: braindecode's LaBraM, CBraMod or REVE, or a Whisper. Its
    # configuration then replaces the four fields below and model.waves.patch and overlap. Empty: random weights.
    c.model.encoder_checkpoint = ""
    # What of a pretrained encoder of waves is trained: "all"; "frozen": nothing; "adapters": low-rank adapters as in
    # model.lora. The bridge always is.
    c.model.encoder_train = "all"
    c.model.encoder_layers = 6
    c.model.encoder_heads = 8  # of the transformer's attention
    c.model.encoder_ffn = 2048
    # Width to which features are projected first. 0: F, padded to a multiple of the heads ("transformer"), or the width
    # of the language model ("unicorn"). Of "lstm", the number of units of each direction (0: F).
    c.model.encoder_width = 0
    c.model.dropout = 0.1  # of the brain encoder; the backbone's dropout is in its Hugging Face configuration
    # Details of UniCoRN that are not published, so these values are our choice (its abstract names a snapshot encoder,
    # a transformer and a bridge).
    c.model.unicorn = ConfigDict()
    # Channels of successive convolutions; each convolution halves every axis of a volume: 64x64x27 -> 4x4x2
    c.model.unicorn.channels = (16, 32, 64, 128)
    c.model.unicorn.hidden = 1024  # units of the hidden layer of a word's features
    c.model.unicorn.activation = "gelu"  # gelu | relu
    c.model.unicorn.positions = "sinusoidal"  # position embeddings of the snapshots in a series: sinusoidal | none
    c.model.unicorn.bridge = "linear"  # linear | relu (as in the paper's EEG encoder)
    c.model.waves = ConfigDict()  # encoders of waves
    c.model.waves.strides = (2, 2)  # conv, whisper: stride of each convolution (of 3 samples) over all channels
    c.model.waves.patch = 200  # labram, cbramod, reve: samples of a patch; each channel is cut into patches
    c.model.waves.overlap = 20  # reve: samples that a patch shares with the next one
    # One position of the language model is the mean over all channels' patches of one time; False: it is one patch.
    c.model.waves.pool = True
    c.model.waves.positions = ""  # reve: JSON file of channel name to [x, y, z]; empty: the places in the data file
    c.model.remat = False  # to save memory, recompute each layer in the backward pass instead of storing its results
    # With remat, still store the results of matrix products ("products"), or only the input of each layer ("nothing")
    c.model.keep = "products"
    c.model.prompt = ""  # text whose embeddings go before the EEG positions
    # Special tokens that the decoder of an encoder-decoder is given after its start token, such as Whisper's
    # "<|en|><|transcribe|><|notimestamps|>". Empty: none, or those that a Whisper's configuration states.
    c.model.decoder_prompt = ""
    c.model.lora = ConfigDict()  # adapters of the language model, with optim.trainable "lora" (Hu et al. 2022)
    c.model.lora.rank = 16
    c.model.lora.alpha = 32.0  # the output of the adapters is multiplied by alpha / rank
    c.model.lora.dropout = 0.05
    # Projections that get an adapter, among q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj.
    c.model.lora.targets = ("q_proj", "v_proj")
    c.model.lora.stacks = ("encoder", "decoder")  # of an encoder-decoder: those that get adapters
    # Dtype of a frozen language model, which is in memory once for all arms: bfloat16 | float32 | int8 (kernels only).
    c.model.frozen_dtype = "bfloat16"

    c.grid = ConfigDict()
    c.grid.train_conditions = ("eeg", "noise")  # one arm is trained for each condition and each seed
    c.grid.seeds = (0,)  # training seeds
    c.grid.eval_conditions = ("eeg", "noise")  # conditions with which each arm is tested
    # The deciding controls: those of eval_conditions that EEG must beat. By default these are all controls that take
    # the words' features away. time_reversed and phase_randomized keep features of the words, so EEG would never beat
    # them if the decoder ignores the order of the words; they answer other questions. If eval_conditions has none of
    # these controls, all of its controls decide.
    c.grid.controls = (
        "noise",
        "noise_redrawn",
        "noise_uniform",
        "noise_spectrum",
        "zero",
        "shuffled",
        "subject_mean",
        "length_only",
        "prompt_only",
    )

    c.optim = ConfigDict()
    c.optim.name = "adamw"  # adamw | adafactor | sgd
    # "all"; "bridge": EEG encoder and bridge, with a frozen language model; "lora": these and adapters of the frozen
    # language model; "first": what the authors' step one trains (step_one sets this value for its own stage).
    c.optim.trainable = "all"
    c.optim.lr = 1e-3  # peak learning rate
    c.optim.schedule = "cosine"  # constant | linear | cosine | geometric | step
    # Learning rate of the last step under linear, cosine and geometric; geometric needs a rate above 0
    c.optim.lr_end = 0.0
    c.optim.decay_every = 1000  # steps between drops of the learning rate under "step"
    c.optim.decay_epochs = 0  # epochs between these drops; 0: decay_every counts
    c.optim.decay_rate = 0.1  # each drop multiplies the learning rate by this factor
    c.optim.warmup_steps = 100
    c.optim.weight_decay = 0.01
    c.optim.momentum = 0.9  # of sgd
    c.optim.grad_clip = 1.0  # global norm of one arm's gradient; 0: none

    c.train = ConfigDict()
    # A number of epochs that is not 0 replaces the number of steps: when the run opens, the steps are computed from the
    # size of the train part. An epoch trains each sample once and pads its last batch.
    c.train.steps = 1000  # number of batches; every arm is trained on all of them
    c.train.epochs = 0  # the same in epochs; 0: steps counts
    c.train.eval_every = 100  # steps between evaluations on dev; the parameters with the lowest dev loss are decoded
    c.train.eval_epochs = 0  # the same in epochs; 0: eval_every counts
    # The dev loss is a mean over "tokens", or over "sentences" (of each sentence's mean, as in the authors' code).
    c.train.best_by = "tokens"
    c.train.patience = 0  # stop after this many evaluations on dev without improvement in any arm; 0: never
    c.train.save_every = 100  # steps between checkpoints
    c.train.save_epochs = 0  # the same in epochs; 0: save_every counts
    c.train.log_every = 20  # steps between lines in metrics.jsonl
    c.train.tracker = ""  # also send the curves to "wandb" or "trackio" ("wandb:PROJECT" names a project); empty: no
    c.train.profile = ""  # "START:END": write a profile of these steps to DIR/profile, for XProf; empty: none
    c.train.label_smoothing = 0.0
    c.train.accumulate = 1  # micro-batches of a batch, computed one after the other: less memory, the same gradient
    # Generator of dropout. "rbg" is cheaper on TPU; its masks depend on the backend.
    c.train.rng = "threefry"

    c.step_one = ConfigDict()  # the first of the authors' two training steps, with optim.trainable "first"
    c.step_one.steps = 0  # number of batches; the second step begins with the best parameters; 0: no step one
    c.step_one.epochs = 0  # the same in epochs; 0: steps counts
    c.step_one.lr = 1e-3  # in place of optim.lr

    # Pretraining of model.encoder "unicorn": the encoder learns to reconstruct its input, first single snapshots (a
    # volume, or a word's features), then series of snapshots, with a decoder that is then discarded. Arms are those of
    # the grid: the noise arm reconstructs noise. Settings of the optimizer that are not set here are those of optim.
    c.pretrain = ConfigDict()
    c.pretrain.enabled = False  # False: the encoder begins the text stage with random weights (UniCoRN* in the papers)
    c.pretrain.loss = "mae"  # mae | mse; UniCoRN's is not published
    c.pretrain.mask = False  # the loss counts only the voxels that vary over the train part, as inside a brain mask
    c.pretrain.freeze_snapshot = False  # train only the transformer in the second stage
    c.pretrain.freeze_encoder = False  # freeze the brain encoder, except its bridge, in the text stage
    c.pretrain.snapshot = ConfigDict()  # the first stage
    c.pretrain.snapshot.steps = 1000  # number of batches; 0: no such stage
    c.pretrain.snapshot.epochs = 0  # the same in epochs; 0: steps counts
    c.pretrain.snapshot.batch_size = 32  # samples (sentences or windows), with all snapshots of each
    c.pretrain.snapshot.lr = 1e-3
    c.pretrain.snapshot.lr_end = 1e-6
    c.pretrain.snapshot.schedule = "linear"  # the cross-subject paper says only "decaying to 1e-6"
    c.pretrain.snapshot.warmup_steps = 0
    c.pretrain.snapshot.eval_every = 100
    c.pretrain.snapshot.eval_epochs = 0
    c.pretrain.snapshot.patience = 0
    c.pretrain.series = ConfigDict()  # the second stage; it has the fields of the first stage, and hidden
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
    # Share of the snapshots that are hidden from the transformer in the second stage; only these then enter the loss.
    # With 0, as in UniCoRN's paper, all enter it, and the transformer may pass each snapshot on unchanged.
    c.pretrain.series.hidden = 0.0

    c.contrastive = ConfigDict()  # used when objective is "contrastive"
    # Frozen text encoder (a checkpoint, or minilm) whose embeddings are the targets; empty: hashed tf-idf of words.
    c.contrastive.text = ""
    c.contrastive.layer = -1  # layer whose output is averaged over tokens; -1: the layer at two thirds of the depth
    c.contrastive.hashed = 512  # length of a hashed tf-idf vector
    c.contrastive.width = 256  # width of the EEG encoder's output, which is averaged over the words
    c.contrastive.temperature = 0.07  # divides the cosines
    c.contrastive.learn_temperature = True  # train the temperature, from that value; 1 / temperature is at most 100
    c.contrastive.symmetric = True  # also train to find the recording of each text among the recordings of the batch

    c.parallel = ConfigDict()
    # How a device computes its arms: in parallel ("vmap") or one after the other ("map", faster for small models on a
    # CPU). "auto": "map" on a single CPU device, else "vmap".
    c.parallel.arms = "vmap"
    c.parallel.mesh = (0, 0)  # devices along the arms and along the batch; 0: chosen, as many as fit along the arms
    c.parallel.fsdp = False  # divide the parameters over the devices that share a batch, instead of copying them
    # Train with a frozen decoder-only model divided over the devices that share a batch, which exchange activations.
    # False: they gather its weights layer by layer (fsdp), or have them whole. In decoding: decode.tensor_parallel.
    c.parallel.tensor_parallel = False
    c.parallel.wave = 0  # arms trained at the same time, the others after them; 0: all that fit into memory
    c.parallel.hosts = "one"  # "auto": the cluster that JAX finds (TPU slice, Slurm); "env": EEG2TEXT_COORDINATOR, ...
    c.parallel.startup = 300  # seconds within which all hosts must have started
    c.parallel.heartbeat = 12  # seconds without a sign of life after which a host counts as lost, and the others end

    c.decode = ConfigDict()  # free-running decoding; fields of GenerationSpec
    c.decode.num_beams = 5  # hypotheses kept at each step; 1: greedy
    c.decode.max_length = 56  # most tokens of a text
    c.decode.repetition_penalty = 5.0  # divides the scores of tokens that the text has already; 1: none
    c.decode.no_repeat_ngram_size = 2  # no n-gram of this many tokens occurs twice in a text; 0: no such limit
    c.decode.length_penalty = 1.0  # above 0 favours long texts, below 0 short ones
    c.decode.num_return_sequences = 1  # texts of each sentence, best first; the first is scored, all are written
    c.decode.do_sample = False  # draw the next token; with beams, draw the beams' continuations without replacement
    c.decode.temperature = 1.0  # temperature, top_k and top_p have an effect only with do_sample
    c.decode.top_k = 50  # draw among this many of the most probable tokens; 0: all
    c.decode.top_p = 1.0  # draw among the most probable tokens whose probabilities sum to this
    # Dtype of the KV cache: "bfloat16" or "float32"; "": model.dtype. A smaller dtype moves less memory at each step,
    # and rounds differently (docs/speed.md has the effect on tokens).
    c.decode.cache_dtype = ""
    # "int8": round the language model's matrices, and the activations that they multiply, to int8; "": model.dtype
    c.decode.weights_dtype = ""
    # Divide a frozen language model over the devices of an arm, which decode a batch together; for models that do not
    # fit one device. Sums are then added in another order, so they are rounded differently.
    c.decode.tensor_parallel = False
    c.decode.batch_size = 32  # sentences decoded at once
    # How many times decoding drops a finished half of the batch and continues with the other half. Each time, one more
    # loop is compiled; decoding is then faster if the time of a step grows with the number of rows, as on a CPU.
    c.decode.compactions = 0
    # Where teacher-forced predictions end. "authors": at the first end token among the argmax tokens of all
    # text.max_tokens positions, as in the authors' code; a model that misses the end writes on into the padding.
    # "reference": likewise, but at the end of the reference at the latest.
    c.decode.teacher_forced_cut = "reference"

    c.retrieval = ConfigDict()  # ranking of the sentences of the test part: which one was read?
    c.retrieval.likelihood = False  # with objective "generate": also rank the sentences by their likelihood
    c.retrieval.endpoint = "top-5"  # score that decides: top-1 | top-5 | rank
    c.retrieval.margin = 0.0  # smallest difference that matters, in points; 0: 2 for top-1, 3 for top-5 and rank

    c.metrics = ConfigDict()  # scores besides those on words
    c.metrics.names = ()  # any of bertscore, similarity, lattescore
    c.metrics.encoder = ""  # text encoder of bertscore and similarity: a checkpoint, or minilm
    c.metrics.layer = -1  # layer whose output bertscore compares; -1: the best layer known
    c.metrics.judge = ""  # for lattescore: the folder DIR/judge of `eeg2text judge`

    c.audit = ConfigDict()  # audit of the EEG arms: EEG against every other evaluation condition
    c.audit.endpoint = "words"  # score that decides: words | rouge-1 | bertscore-f | similarity | lattescore-mean
    c.audit.secondary = ()  # further endpoints to compute
    c.audit.margin = 0.0  # smallest content difference that matters, in points; 0: the endpoint's default

    return c
