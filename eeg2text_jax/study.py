"""Everything that a run knows before training: data, split, text, arms and model, made or found in the workdir."""

import dataclasses
import hashlib

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict
from transformers import PreTrainedTokenizerBase

from eeg2text_jax.conditions.condition import check_conditions, needs
from eeg2text_jax.conditions.context import condition_key
from eeg2text_jax.conditions.donors import donor_table, label_rows
from eeg2text_jax.conditions.means import train_means
from eeg2text_jax.configuration import to_json
from eeg2text_jax.data.batches import Samples, feature_scale
from eeg2text_jax.data.datafile import DataFile, read_datafile
from eeg2text_jax.data.prepare import prepare
from eeg2text_jax.data.text import encode_targets, load_tokenizer, train_tokenizer
from eeg2text_jax.files import replacing
from eeg2text_jax.grid import Arm, arms, dropout_keys
from eeg2text_jax.models.build import build_model
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.pretrained.hub import checkpoint_folder
from eeg2text_jax.pretrained.start import model_from_checkpoint
from eeg2text_jax.splits.certificate import certify_data
from eeg2text_jax.splits.methods import make_split
from eeg2text_jax.splits.report import part_table, verdict
from eeg2text_jax.splits.split import Split
from eeg2text_jax.splits.splitfile import read_split_file, write_split_file
from eeg2text_jax.training.step import StudyArrays
from eeg2text_jax.workdir import Workdir


@dataclasses.dataclass(frozen=True)
class Study:
    """The fixed ingredients of one run."""

    config: ConfigDict
    workdir: Workdir
    data: DataFile
    split: Split
    tokenizer: PreTrainedTokenizerBase
    samples: Samples
    arms: tuple[Arm, ...]
    model: Seq2SeqModel
    arrays: StudyArrays

    @property
    def config_digest(self) -> str:
        return hashlib.sha256(to_json(self.config).encode()).hexdigest()[:16]

    @property
    def tokenizer_digest(self) -> str:
        return hashlib.sha256(self.tokenizer.backend_tokenizer.to_str().encode()).hexdigest()[:16]


def open_study(config: ConfigDict, workdir: Workdir) -> Study:
    """Makes what the workdir lacks and reads the rest.

    Raises:
      UserError: the data source, the tokenizer or a field of the configuration is not usable.
    """
    check_conditions(tuple(config.grid.train_conditions), "grid.train_conditions", training=True)
    check_conditions(tuple(config.grid.eval_conditions), "grid.eval_conditions", training=False)
    grid_arms = arms(config)
    data = open_data(config, workdir)
    split = open_split(config, workdir, data)
    tokenizer = open_tokenizer(config, workdir, data, split)
    build = model_from_checkpoint if config.model.checkpoint else build_model
    model = build(config.model, data.n_features, tokenizer)
    samples, means = make_samples(config, data, split, tokenizer, model.pad_token)
    dropout = dropout_keys(grid_arms, config.seed, config.train.rng)
    arrays = StudyArrays(dropout, condition_key(config.seed), means)
    return Study(config, workdir, data, split, tokenizer, samples, grid_arms, model, arrays)


def open_data(config: ConfigDict, workdir: Workdir) -> DataFile:
    """The data file of `config.data.source`: that file itself, or one prepared from it once."""
    source = str(config.data.source)
    if source.endswith(".h5"):
        return read_datafile(source)
    if not workdir.data.exists():
        print(f"preparing {source} ...")
        tally = prepare(config.data, workdir.data)
        print("\n".join([*tally.notes, tally.table()]))
    return read_datafile(workdir.data)


def open_split(config: ConfigDict, workdir: Workdir, data: DataFile) -> Split:
    """The split of this workdir; once made it stays, whatever becomes of the texts."""
    if workdir.split.exists():
        return read_split_file(workdir.split).resolve(data)
    split = make_split(data, **config.split)
    certificate = certify_data(data, split, config.split.ratio)
    write_split_file(workdir.split, certificate)
    print(f"{part_table(certificate)}\n{verdict(certificate)}")
    return split


def open_tokenizer(config: ConfigDict, workdir: Workdir, data: DataFile, split: Split) -> PreTrainedTokenizerBase:
    """The tokenizer of `config.text`, of the checkpoint, or one trained on the sentences of the train part."""
    if not workdir.tokenizer.exists():
        folder = config.text.tokenizer or (config.model.checkpoint and checkpoint_folder(config.model.checkpoint))
        if folder:
            tokenizer = load_tokenizer(folder)
        else:
            tokenizer = train_tokenizer(data.sentence[split.parts["train"]], config.text.vocab_size)
        with replacing(workdir.tokenizer) as partial:
            tokenizer.save_pretrained(str(partial))
    return load_tokenizer(workdir.tokenizer)


def make_samples(
    config: ConfigDict, data: DataFile, split: Split, tokenizer: PreTrainedTokenizerBase, pad_token: int
) -> tuple[Samples, jax.Array | None]:
    """What batches are cut from, and the table of subject means `[S + 1, F]` where a condition needs it."""
    train = split.parts["train"]
    mean, scale = feature_scale(data, train, config.data.standardize)
    conditions = {*config.grid.train_conditions, *config.grid.eval_conditions}
    needed = needs(sorted(conditions))
    means, subject = train_means(data, train)
    samples = Samples(
        data=data,
        targets=encode_targets(tokenizer, data.sentence, config.text.max_tokens),
        mean=mean,
        scale=scale,
        max_words=config.data.max_words,
        pad_token=pad_token,
        subject=subject if "subject" in needed else None,
        donors=donor_table(data, list(split.parts.values()), config.seed).donor if "donor" in needed else None,
        label_rows=label_rows(data, train, config.seed) if "label_shuffle" in conditions else None,
    )
    return samples, jnp.asarray((means - mean) / scale) if "means" in needed else None
