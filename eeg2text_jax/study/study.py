"""The inputs of a run that stay fixed (data, split, tokenizer, arms, model), created in the workdir or read from it."""

import dataclasses
import functools
import hashlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from transformers import PreTrainedTokenizerBase

from eeg2text_jax.backbones.build import build_model
from eeg2text_jax.conditions import NEAREST, SAME_PLACE
from eeg2text_jax.conditions.condition import condition_key, needs
from eeg2text_jax.conditions.donors import donor_table, label_rows, train_means
from eeg2text_jax.conditions.time_controls import (
    clock_features,
    clock_note,
    nearest_texts,
    neighbor_table,
    same_place_texts,
)
from eeg2text_jax.data.batches import Samples, feature_scale
from eeg2text_jax.data.datafile import DataFile, read_datafile
from eeg2text_jax.data.prepare import prepare
from eeg2text_jax.data.prompt import has_fields
from eeg2text_jax.data.text import encode_targets, load_tokenizer, longer_than, train_tokenizer
from eeg2text_jax.errors import UserError
from eeg2text_jax.files import replacing
from eeg2text_jax.models.two_towers import ContrastiveModel
from eeg2text_jax.parallel.placement import Placement
from eeg2text_jax.pretrained.folder import checkpoint_folder, fingerprint
from eeg2text_jax.pretrained.start import model_from_checkpoint
from eeg2text_jax.splits.certificate import certify_data, part_table, size_lines, verdict
from eeg2text_jax.splits.methods import make_split
from eeg2text_jax.splits.split import PARTS, Split
from eeg2text_jax.splits.splitfile import read_split_file, write_split_file
from eeg2text_jax.study.config_file import check_derived
from eeg2text_jax.study.configuration import fields_digest
from eeg2text_jax.study.grid import Arm, StudyArrays, arms, dropout_keys, placement_of
from eeg2text_jax.study.language_model import adapted, check_positions, own_prompts
from eeg2text_jax.study.lengths import lines, resolved
from eeg2text_jax.study.sections import Settings
from eeg2text_jax.study.text_targets import TextTargets, open_targets
from eeg2text_jax.study.workdir import Workdir


@dataclasses.dataclass(frozen=True)
class Study:
    """The inputs of a run that stay fixed: configuration, data, split, tokenizer, samples, arms and model."""

    config: Settings
    workdir: Workdir
    data: DataFile
    split: Split
    tokenizer: PreTrainedTokenizerBase
    samples: Samples
    arms: tuple[Arm, ...]
    model: Any  # Seq2SeqModel, ContrastiveModel, or in pretraining stages ReconstructionModel
    arrays: StudyArrays
    targets: TextTargets | None = None  # text embeddings, for the contrastive objective
    before: "Study | None" = None  # the training stage whose best parameters initialize this one

    @functools.cached_property
    def placement(self) -> Placement:
        """The device mesh and the sharding of the arrays of all arms."""
        return placement_of(self.config, len(self.arms))

    @functools.cached_property
    def frozen_digest(self) -> str:
        """The fingerprint of the checkpoint with the frozen weights; "" if the arms share no frozen weights."""
        frozen = getattr(self.model, "shared_frozen", False) and self.config.model.checkpoint
        return fingerprint(checkpoint_folder(self.config.model.checkpoint)) if frozen else ""

    @property
    def config_digest(self) -> str:
        """A hash of all fields that predictions depend on."""
        return fields_digest(self.config.document, "decoding")

    @property
    def tokenizer_digest(self) -> str:
        return hashlib.sha256(self.tokenizer.backend_tokenizer.to_str().encode()).hexdigest()[:16]


def open_study(config: Settings, workdir: Workdir, *, other_texts: bool = False) -> Study:
    """Return the inputs of a run: read from the workdir, or created and stored in it.

    With `other_texts`, the data file may differ from the data of the split in its sentences, and in nothing else, to
    show that free-running predictions do not depend on the sentences. Raises UserError if the data source, the
    tokenizer or a field of the configuration is not usable.
    """
    grid_arms = arms(config.grid)
    data = open_data(config, workdir)
    split = open_split(config, workdir, data, other_texts=other_texts)
    n_train = len(split.parts["train"])
    config = resolved(config, n_train)
    check_derived(workdir, config, n_train)
    for line in lines(config, n_train):
        print(line)
    tokenizer = open_tokenizer(config, workdir, data, split)
    build = model_from_checkpoint if config.model.checkpoint else build_model
    model = adapted(build(config.model, data.feature_shape, tokenizer), config, tokenizer)
    samples, means = make_samples(config, data, split, tokenizer, model.pad_token, alone=model.spec.encoder is None)
    if samples.prompts is not None:
        check_positions(model, config, sum(ids.shape[1] for ids in samples.prompts))
    dropout = dropout_keys(grid_arms, config.seed, config.train.rng)
    arrays = StudyArrays(dropout, condition_key(config.seed), means)
    study = Study(config, workdir, data, split, tokenizer, samples, grid_arms, model, arrays)
    return _contrastive(study) if config.objective == "contrastive" else study


def _contrastive(study: Study) -> Study:
    """Return the study with text targets, and a contrastive model in place of the generative model."""
    config = study.config
    targets = open_targets(config, study.workdir.targets, study.data, study.split)
    settings = config.contrastive
    model = ContrastiveModel(
        base=study.model,
        width=settings.width,
        outputs=targets.vectors.shape[1],
        temperature=settings.temperature,
        learn_temperature=settings.learn_temperature,
    )
    arrays = study.arrays._replace(texts=targets.arrays(config, study.data, study.split))
    return dataclasses.replace(study, model=model, arrays=arrays, targets=targets)


def open_data(config: Settings, workdir: Workdir) -> DataFile:
    """Return the data file `config.data.source`, or the workdir's data file, made once from another source."""
    source = config.data.source
    if source.endswith(".h5"):
        return read_datafile(source)
    if not workdir.data.exists():
        print(f"preparing {source} ...")
        tally = prepare(config.data, workdir.data)
        print("\n".join([*tally.notes, tally.report()]))
    return read_datafile(workdir.data)


def open_split(config: Settings, workdir: Workdir, data: DataFile, *, other_texts: bool = False) -> Split:
    """Return the split of the data; it is made and stored in the workdir once.

    Raises UserError if the stored split is of other data (see `open_study` for `other_texts`), or if a new split cannot
    be made.
    """
    if workdir.split.exists():
        found = read_split_file(workdir.split)
        found.check_same_data(data, other_texts=other_texts)
        return found.resolve(data, other_texts=other_texts)
    split = make_split(data, **vars(config.split))
    certificate = certify_data(data, split, config.split.ratio)
    write_split_file(workdir.split, certificate)
    print("\n".join([part_table(certificate), *size_lines(certificate), verdict(certificate)]))
    return split


def open_tokenizer(config: Settings, workdir: Workdir, data: DataFile, split: Split) -> PreTrainedTokenizerBase:
    """Return the tokenizer of `config.text` or of the checkpoint, or one trained on the sentences of the train part."""
    if not workdir.tokenizer.exists():
        folder = config.text.tokenizer or (config.model.checkpoint and checkpoint_folder(config.model.checkpoint))
        if folder:
            tokenizer = load_tokenizer(folder)
        else:
            tokenizer = train_tokenizer(data.sentence[split.parts["train"]], config.text.vocab_size)
        with replacing(workdir.tokenizer) as partial:
            tokenizer.save_pretrained(str(partial))
    return load_tokenizer(workdir.tokenizer)


def cuts(
    config: Settings, data: DataFile, split: Split, tokenizer: PreTrainedTokenizerBase, alone: bool = False
) -> Iterator[str]:
    """Yield messages on how many samples have more words or tokens than the configuration keeps.

    `alone` is for a decoder-only model. Raises UserError if a sample has more words than the widest bucket.
    """
    rows = np.concatenate(list(split.parts.values()))
    words, most, widest = data.n_words[rows], config.data.max_words, max(words for words, _ in config.batch.buckets)
    if min(words.max(), most) > widest:
        raise UserError(
            f"batch.buckets: the widest has {widest} words and a sample has {words.max()}; add a wider bucket, or "
            f"cut longer samples with data.max_words={widest}."
        )
    most_tokens = config.text.max_tokens
    too_long = longer_than(tokenizer, list(map(str, data.sentence[rows])), most_tokens, alone)
    if (words > most).any():
        yield (
            f"{np.sum(words > most)} of {len(rows)} samples have more than data.max_words={most} words (up to "
            f"{words.max()}): further words are cut."
        )
    if too_long.any():
        yield (
            f"{too_long.sum()} of {len(rows)} sentences have more than text.max_tokens={most_tokens} tokens: "
            "as targets they are cut."
        )


def make_samples(
    config: Settings,
    data: DataFile,
    split: Split,
    tokenizer: PreTrainedTokenizerBase,
    pad_token: int,
    *,
    alone: bool = False,
) -> tuple[Samples, jax.Array | None]:
    """Return the samples that batches are made of, and the means `[S + 1, *feature_shape]` if a condition needs them.

    The means are over the words of each of S subjects; the last row is over all words. `alone` is for a decoder-only
    model.
    """
    train, text = split.parts["train"], config.text
    scaling = feature_scale(data, train, config.data.standardize)
    conditions = {*config.grid.train_conditions, *config.grid.eval_conditions}
    needed = needs(sorted(conditions))
    parts, test = [split.parts[name] for name in PARTS], split.parts["test"]
    donors = donor_table(data, list(split.parts.values()), config.seed) if {"donor", "neighbor"} & needed else None
    neighbors = neighbor_table(data, parts, donors.donor) if "neighbor" in needed else None
    copies, copied = {}, []
    for name, choose in ((NEAREST, nearest_texts), (SAME_PLACE, same_place_texts)):
        if name in conditions:
            copies[name] = np.full(len(data), -1)
            copies[name][test], note = choose(data, train, test)
            copied.append(note)
    shuffled = f"shuffled, donors in the test part: {donors.summary(test)}." if "donor" in needed else ""
    clock, told = None, ""
    if "clock" in needed:
        clock = clock_features(data, train, config.seed)
        told = clock_note(data, train, clock)
    donor_note = " ".join(filter(None, [shuffled, told, neighbors.note if neighbors else "", *copied]))
    odd = [] if data.clock is None else data.clock.notes()
    for note in filter(None, [scaling.note(), *odd, *cuts(config, data, split, tokenizer, alone), donor_note]):
        print(note)
    means, subject = train_means(data, train) if needed & {"means", "subject"} else (None, None)
    samples = Samples(
        data=data,
        targets=encode_targets(tokenizer, data.sentence.tolist(), config.text.max_tokens, alone),
        mean=scaling.mean,
        scale=scaling.scale,
        max_words=config.data.max_words,
        pad_token=pad_token,
        subject=subject if "subject" in needed else None,
        donors=donors.donor if "donor" in needed else None,
        clock=clock,
        neighbors=neighbors.donor if neighbors else None,
        copies=copies,
        donor_note=donor_note,
        label_rows=label_rows(data, train, config.seed) if "label_shuffle" in conditions else None,
        prompts=own_prompts(text.template, text.chat, data, tokenizer) if has_fields(text.template) else None,
    )
    return samples, jnp.asarray((means - scaling.mean) / scaling.scale) if "means" in needed else None
