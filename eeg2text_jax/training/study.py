"""The fixed inputs of a run (data, split, tokenizer, arms, model), made in the workdir or read from it."""

import collections
import dataclasses
import functools
import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from transformers import PreTrainedTokenizerBase as Tokenizer

from eeg2text_jax.base.devices.mesh import Placement
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import replacing
from eeg2text_jax.data.batches import Samples, feature_scale
from eeg2text_jax.data.datafile import DataFile, read_datafile
from eeg2text_jax.data.prepare import prepare
from eeg2text_jax.data.prompt import has_fields, make_prompt, make_prompts
from eeg2text_jax.data.splits.certificate import certify_data, part_table, size_lines, verdict
from eeg2text_jax.data.splits.methods import make_split
from eeg2text_jax.data.splits.split import Split, read_split_file, write_split_file
from eeg2text_jax.data.text import encode_targets, load_tokenizer, longer_than, train_tokenizer
from eeg2text_jax.decoding.settings import GenerationSpec
from eeg2text_jax.instrument.predictions.file import sentence_key
from eeg2text_jax.instrument.workdir import Workdir, fields_digest
from eeg2text_jax.models.backbones import LORA_TARGETS, LoraSettings
from eeg2text_jax.models.backbones.build import build_model
from eeg2text_jax.models.functional import ContrastiveModel, Seq2SeqModel, source_length
from eeg2text_jax.models.pretrained.encoders import TextEmbedder, load_encoder
from eeg2text_jax.models.pretrained.folder import checkpoint_folder, fingerprint
from eeg2text_jax.models.pretrained.load import model_from_checkpoint, read_config
from eeg2text_jax.models.pretrained.wave_folder import unused_note
from eeg2text_jax.models.spec import Channels, LoraSpec, Seq2SeqSpec
from eeg2text_jax.models.waves import positions_of
from eeg2text_jax.training.conditions._donors import chosen_samples, constant_arrays
from eeg2text_jax.training.conditions.condition import stream_key
from eeg2text_jax.training.sections import GridSettings, Settings, length_lines, with_steps


@dataclasses.dataclass(frozen=True)
class Arm:
    """One training run. Arms of a seed share initial weights, batches and dropout; the condition differs."""

    condition: str
    seed: int

    def __str__(self) -> str:
        return f"{self.condition}/{self.seed}"


class TextArrays(NamedTuple):
    """Text embeddings on the device, targets of the contrastive objective."""

    vectors: jax.Array  # float32 [S, E], a row for each distinct sentence
    sentence: jax.Array  # int32 [N], row of `vectors` for each sample
    exchanged: jax.Array  # int32 [N], the same under `label_shuffle`


class StudyArrays(NamedTuple):
    """Constant inputs of every training step."""

    dropout: jax.Array  # PRNG keys of dropout, [A]
    condition: jax.Array  # scalar, the PRNG key of all random conditions
    means: jax.Array | None = None  # float32 [S + 1, F]: mean features of each subject, then of all
    voxels: jax.Array | None = None  # float32, shape of a volume: 1 where the reconstruction loss counts; None: all 1
    texts: TextArrays | None = None  # of the contrastive objective
    kernel: jax.Array | None = None  # float32 [K, F], of the condition `noise_spectrum`
    frozen: Any = None  # parameters that all arms share, see `base.devices.arms.Divided`


def arms(config: GridSettings) -> tuple[Arm, ...]:
    """Return the arms: all training conditions of the first seed, then of the next."""
    return tuple(Arm(name, int(seed)) for seed in config.seeds for name in config.train_conditions)


def placement_of(settings: Settings, n_arms: int, devices: Sequence[jax.Device] | int | None = None) -> Placement:
    """Return the mesh and the sharding of `n_arms` arms, see `Placement.choose`."""
    return Placement.choose(settings.parallel, n_arms, settings.batch.size, settings.train.accumulate, devices)


RNGS = {"threefry": "threefry2x32", "rbg": "rbg"}  # values of train.rng -> JAX's PRNG implementations


def init_keys(grid_arms: tuple[Arm, ...], config_seed: int, stream: str = "init", rng: str = "") -> jax.Array:
    """Return the arms' keys of initial parameters, or of another `stream`, `[A]`; arms of a seed share one."""
    root = stream_key(config_seed, stream, RNGS[rng] if rng else None)
    return jnp.stack([jax.random.fold_in(root, arm.seed) for arm in grid_arms])


def dropout_keys(grid_arms: tuple[Arm, ...], config_seed: int, rng: str) -> jax.Array:
    """Return the arms' keys of dropout, `[A]`; `rng` is the field `train.rng`."""
    return init_keys(grid_arms, config_seed, "dropout", rng)


def adapted(model: Seq2SeqModel, config: Settings, tokenizer: Any) -> Seq2SeqModel:
    """Return the model with the prompt, adapters and frozen weights of `config`.

    UserError if the tokenizer has no chat template, or prompt, recording and text exceed the model's positions.
    """
    if config.optim.trainable in ("bridge", "lora"):
        model = dataclasses.replace(model, shared_frozen=True, divided=config.parallel.tensor_parallel)
    if config.optim.trainable == "lora":
        model = dataclasses.replace(model, spec=_with_lora(model.spec, config.model.lora))
    if model.spec.encoder is not None:
        longest, most = max(words for words, _ in config.batch.buckets), model.spec.encoder.max_positions
        if most is not None and (length := source_length(model, longest)) > most:
            raise UserError(
                f"batch.buckets: a recording of {longest} words or samples has {length} positions, but the encoder "
                f"has {most}; shorten the buckets and data.max_words, or let model.waves shorten recordings more."
            )
        return model
    decoder = dataclasses.replace(model.spec.decoder, int8=config.model.frozen_dtype == "int8")
    prompt = make_prompt(tokenizer, config.text.template, config.text.chat)
    eeg = dataclasses.replace(model.eeg, prompt=prompt.before, prompt_after=prompt.after)
    check_positions(model, config, len(prompt.before) + len(prompt.after))
    return dataclasses.replace(model, spec=dataclasses.replace(model.spec, decoder=decoder), eeg=eeg)


def _with_lora(spec: Seq2SeqSpec, lora: LoraSettings) -> Seq2SeqSpec:
    """Return the description with low-rank adapters in the stacks of `lora`; a decoder-only model has one."""
    adapters = LoraSpec(lora.rank, lora.alpha, lora.dropout, tuple(LORA_TARGETS[name] for name in lora.targets))
    sides = ("decoder",) if spec.encoder is None else lora.stacks
    changes: dict[str, Any] = {side: dataclasses.replace(getattr(spec, side), lora=adapters) for side in sides}
    return dataclasses.replace(spec, **changes)


def check_positions(model: Seq2SeqModel, config: Settings, prompt: int) -> None:
    """Raise UserError if `prompt` tokens and the longest recording and text exceed the model's positions."""
    recording = positions_of(model.eeg, max(words for words, _ in config.batch.buckets))
    longest = prompt + recording + max(config.text.max_tokens, config.decode.max_length)
    if longest > (positions := model.spec.decoder.max_positions):
        raise UserError(
            f"text.template: the prompt ({prompt} tokens), the recording ({recording} positions) and the text need "
            f"{longest} positions, but the model has {positions}; shorten the prompt, or lower data.max_words, "
            "text.max_tokens or decode.max_length."
        )


# Targets of the contrastive objective: the mean over tokens of a text encoder's hidden states at one layer or, without
# an encoder, hashed tf-idf; standardized per dimension over the distinct train sentences.


@dataclasses.dataclass(frozen=True)
class TextTargets:
    """Standardized embeddings of the distinct sentences, in the order of the data file."""

    sentences: tuple[str, ...]  # S sentences, normalized by `sentence_key`
    vectors: np.ndarray  # embeddings, float32 [S, E]
    signature: str  # text on what made `vectors`

    def rows(self, texts: Iterable[str]) -> np.ndarray:
        """Return the index of each text's row in `vectors`, int32 `[N]`."""
        place = {text: row for row, text in enumerate(self.sentences)}
        return np.array([place[sentence_key(str(text))] for text in texts], np.int32)

    def arrays(self, texts: Iterable[str], label_rows: np.ndarray | None) -> TextArrays:
        """Return the embeddings and each sample's row, also under `label_shuffle`."""
        sentence = self.rows(texts)
        exchanged = sentence if label_rows is None else sentence[label_rows]
        return TextArrays(jnp.asarray(self.vectors), jnp.asarray(sentence), jnp.asarray(exchanged))


def open_targets(config: Settings, path: epath.Path, data: DataFile, split: Split) -> TextTargets:
    """Return the targets of `config.contrastive`, read from `path`, or made and stored there."""
    keys = np.array([sentence_key(str(text)) for text in data.sentence], object)
    sentences = tuple(dict.fromkeys(keys))
    if not path.exists():
        train_keys = set(keys[split.parts["train"]])
        train = np.array([key in train_keys for key in sentences])
        settings = config.contrastive
        if settings.text:
            vectors, signature = hidden_means(settings.text, settings.layer, sentences)
        else:
            vectors = hashed_tfidf(sentences, train, settings.hashed)
            signature = f"tf-idf of words, hashed to {settings.hashed} numbers|idf:train|standardized:train"
        with replacing(path) as partial, partial.open("wb") as file:
            np.savez(file, vectors=standardized(vectors, train), signature=np.array(signature))
        print(f"targets: {len(sentences)} sentences, {signature}")
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        targets = TextTargets(sentences, arrays["vectors"], str(arrays["signature"]))
    if len(targets.vectors) != len(sentences):
        raise UserError(
            f"{path}: has {len(targets.vectors)} embeddings for {len(sentences)} sentences; remove it to make it again."
        )
    return targets


def standardized(vectors: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Standardize embeddings `[S, E]` over the sentences `train`, bool `[S]`; constant columns become 0."""
    mean, deviation = vectors[train].mean(0), vectors[train].std(0)
    varies = deviation > 1e-6 * np.maximum(np.abs(vectors[train]).max(0), 1e-30)
    if not varies.any():
        raise UserError(
            "contrastive: the sentences of the train part all have the same embedding; change contrastive.text."
        )
    return np.where(varies, (vectors - mean) / np.where(varies, deviation, 1.0), 0.0).astype(np.float32)


def chosen_layer(name: str, layer: int) -> int:
    """Return `layer`, or for -1 that at two thirds of the encoder's depth; UserError if there is none."""
    config: Any = read_config(checkpoint_folder(name))
    names = ("num_hidden_layers", "encoder_layers", "num_layers")  # fields with the number of layers
    depth = next((int(value) for field in names if (value := getattr(config, field, None)) is not None), 0)
    if layer > depth:
        raise UserError(f"contrastive.layer is {layer}; {name} has layers 0 (its embeddings) to {depth}.")
    return round(2 * depth / 3) if layer < 0 else layer


def hidden_means(name: str, layer: int, sentences: Sequence[str]) -> tuple[np.ndarray, str]:
    """Return mean hidden states `[S, E]` over non-special tokens, and text on what made them."""
    embedder = TextEmbedder(load_encoder(name, chosen_layer(name, layer)))
    special = np.array(sorted(embedder.loaded.tokenizer.all_special_ids))
    ids = embedder.tokens(sentences)
    means = []
    for one, states in zip(ids, embedder.states(ids), strict=True):
        real = ~np.isin(one, special)
        means.append(states[real if real.any() else slice(None)].mean(0, dtype=np.float64))
    return np.stack(means), f"{embedder.describe()}|mean over tokens|standardized:train"


def hashed_tfidf(sentences: Sequence[str], train: np.ndarray, width: int) -> np.ndarray:
    """Return unit-norm hashed tf-idf vectors, float64 `[S, width]`: sums of random signs of words.

    Weights are scikit-learn's, `tf (1 + ln((1 + n) / (1 + df)))` over the `n` train sentences; signs are of a word's
    SHAKE-256 digest, the same on every machine.
    """
    words = [re.findall(r"\w+", text.lower()) for text in sentences]
    frequency = collections.Counter(word for i in np.flatnonzero(train) for word in set(words[i]))

    @functools.cache
    def signs(word: str) -> np.ndarray:
        stream = hashlib.shake_256(word.encode()).digest(-(-width // 8))
        return 2.0 * np.unpackbits(np.frombuffer(stream, np.uint8))[:width] - 1.0

    n, vectors = int(train.sum()), np.zeros((len(sentences), width))
    for row, tokens in enumerate(words):
        for word, count in collections.Counter(tokens).items():
            vectors[row] += count * (1 + math.log((1 + n) / (1 + frequency[word]))) * signs(word)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


@dataclasses.dataclass(frozen=True)
class Study:
    """The fixed inputs of a run."""

    config: Settings
    workdir: Workdir
    data: DataFile
    split: Split
    tokenizer: Tokenizer
    samples: Samples
    arms: tuple[Arm, ...]
    model: Any  # Seq2SeqModel, ContrastiveModel, or in pretraining stages ReconstructionModel
    arrays: StudyArrays
    targets: TextTargets | None = None  # of the contrastive objective
    before: "Study | None" = None  # the stage whose best parameters initialize this one

    @functools.cached_property
    def placement(self) -> Placement:
        """The device mesh and the sharding of all arms' arrays."""
        return placement_of(self.config, len(self.arms))

    @functools.cached_property
    def generation(self) -> GenerationSpec:
        """The settings of free-running decoding; UserError if they do not fit the model's tokens."""
        return GenerationSpec.from_fields(self.config.decode.fields(), self.model)

    @functools.cached_property
    def frozen_digest(self) -> str:
        """The fingerprint of the checkpoint with frozen weights; "" if the arms share none."""
        frozen = self.model.shared_frozen and self.config.model.checkpoint
        return fingerprint(checkpoint_folder(self.config.model.checkpoint)) if frozen else ""

    @property
    def config_digest(self) -> str:
        """A hash of all fields that predictions depend on."""
        return fields_digest(self.config.document, "decoding")

    @property
    def tokenizer_digest(self) -> str:
        return hashlib.sha256(self.tokenizer.backend_tokenizer.to_str().encode()).hexdigest()[:16]


def open_study(config: Settings, workdir: Workdir) -> Study:
    """Return the inputs of a run, read from the workdir, or made and stored in it; UserError if not usable."""
    grid_arms = arms(config.grid)
    data = open_data(config, workdir)
    split = open_split(config, workdir, data)
    train = split.parts["train"]
    config = with_steps(config, len(train))
    for line in length_lines(config, len(train)):
        print(line)
    tokenizer = open_tokenizer(config, workdir, data, split)
    build = model_from_checkpoint if config.model.checkpoint else build_model
    channels = channels_of(data)
    model = adapted(build(config.model, data.feature_shape, tokenizer, channels), config, tokenizer)
    if note := unused_note(model.eeg, channels):
        print(note)
    samples = make_samples(config, data, split, tokenizer, model.pad_token, alone=model.spec.bare_targets)
    if samples.prompts is not None:
        check_positions(model, config, sum(ids.shape[1] for ids in samples.prompts))
    dropout = dropout_keys(grid_arms, config.seed, config.train.rng)
    arrays = StudyArrays(dropout, **constant_arrays(config.grid.conditions, samples, train, config.seed))
    study = Study(config, workdir, data, split, tokenizer, samples, grid_arms, model, arrays)
    return _contrastive(study) if config.objective == "contrastive" else study


def channels_of(data: DataFile) -> Channels:
    places: tuple[Any, ...] = () if data.positions is None else tuple(tuple(map(float, p)) for p in data.positions)
    return Channels(data.channels, data.sfreq, places)


def _contrastive(study: Study) -> Study:
    targets = open_targets(study.config, study.workdir.targets, study.data, study.split)
    settings = study.config.contrastive
    model = ContrastiveModel(
        base=study.model,
        width=settings.width,
        outputs=targets.vectors.shape[1],
        temperature=settings.temperature,
        learn_temperature=settings.learn_temperature,
    )
    arrays = study.arrays._replace(texts=targets.arrays(study.data.sentence, study.samples.label_rows))
    return dataclasses.replace(study, model=model, arrays=arrays, targets=targets)


def open_data(config: Settings, workdir: Workdir) -> DataFile:
    """Return the data file `config.data.source`, or the workdir's, made once from another source."""
    if config.data.source.endswith(".h5"):
        return read_datafile(config.data.source)
    if not workdir.data.exists():
        print(f"preparing {config.data.source} ...")
        tally = prepare(config.data, workdir.data)
        print("\n".join([*tally.notes, tally.report()]))
    return read_datafile(workdir.data)


def open_split(config: Settings, workdir: Workdir, data: DataFile) -> Split:
    """Return the split, made and stored in the workdir once; UserError if it is of other data."""
    if workdir.split.exists():
        stored = read_split_file(workdir.split)
        stored.check_same_data(data)
        return stored.resolve(data)
    split = make_split(data, **vars(config.split))
    certificate = certify_data(data, split, config.split.ratio)
    write_split_file(workdir.split, certificate)
    print("\n".join([part_table(certificate), *size_lines(certificate), verdict(certificate)]))
    return split


def open_tokenizer(config: Settings, workdir: Workdir, data: DataFile, split: Split) -> Tokenizer:
    """Return the tokenizer of `config.text` or the checkpoint, or one trained on the train part."""
    if not workdir.tokenizer.exists():
        if folder := config.text.tokenizer or (config.model.checkpoint and checkpoint_folder(config.model.checkpoint)):
            tokenizer = load_tokenizer(folder)
        else:
            tokenizer = train_tokenizer(data.sentence[split.parts["train"]], config.text.vocab_size)
        with replacing(workdir.tokenizer) as partial:
            tokenizer.save_pretrained(str(partial))
    return load_tokenizer(workdir.tokenizer)


def cuts(config: Settings, data: DataFile, split: Split, tokenizer: Tokenizer, alone: bool = False) -> Iterator[str]:
    """Yield messages on samples with more words or tokens than are kept; UserError if one exceeds the widest bucket.

    `alone` is for a decoder-only model.
    """
    rows = np.concatenate(list(split.parts.values()))
    words, most, widest = data.n_words[rows], config.data.max_words, max(words for words, _ in config.batch.buckets)
    unit = "moments" if data.is_waves else "words"
    if min(words.max(), most) > widest:
        raise UserError(
            f"batch.buckets: the widest has {widest} {unit} and a sample has {words.max()}; add a wider bucket, or "
            f"cut longer samples with data.max_words={widest}."
        )
    tokens = config.text.max_tokens
    too_long = longer_than(tokenizer, list(map(str, data.sentence[rows])), tokens, alone).sum()
    if cut := (words > most).sum():
        shown = f"more than data.max_words={most} {unit} (up to {words.max()}): further {unit} are cut."
        yield f"{cut} of {len(rows)} samples have {shown}"
    if too_long:
        shown = f"more than text.max_tokens={tokens} tokens: as targets they are cut."
        yield f"{too_long} of {len(rows)} sentences have {shown}"


def make_samples(
    config: Settings, data: DataFile, split: Split, tokenizer: Tokenizer, pad_token: int, *, alone: bool = False
) -> Samples:
    """Return the samples of all batches, and print notes; `alone` is for a decoder-only model."""
    text, prompts = config.text, None
    scaling = feature_scale(data, split.parts["train"], config.data.standardize)
    chosen = chosen_samples(config.grid.conditions, data, split, config.seed)
    notes = [scaling.note(), *([] if data.clock is None else data.clock.notes())]
    for note in filter(None, [*notes, *cuts(config, data, split, tokenizer, alone), chosen["donor_note"]]):
        print(note)
    if has_fields(text.template):
        prompts = make_prompts(tokenizer, text.template, text.chat, data.subject, data.task)
    return Samples(
        data=data,
        targets=encode_targets(tokenizer, data.sentence.tolist(), text.max_tokens, alone),
        mean=scaling.mean,
        scale=scaling.scale,
        max_words=config.data.max_words,
        pad_token=pad_token,
        prompts=prompts,
        **chosen,
    )
