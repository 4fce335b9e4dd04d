"""Derive numbers of steps from numbers of epochs, once the split is known.

An epoch field, such as `train.epochs`, replaces a step field, such as `train.steps`, unless the epoch field is 0. An
epoch trains every sample of the train part once and pads its last batch: 9,951 samples in batches of 32 are 311 steps.
The derived steps are stored in the workdir's `config.json`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from eeg2text_jax.data.epochs import count_batches
from eeg2text_jax.study.sections import Settings


class Derived(NamedTuple):
    """Names of the two fields that belong to an epoch field such as `train.epochs`."""

    steps: str  # the step field that the epoch field replaces, such as `train.steps`
    batch: str  # the field with the batch size, which gives the steps of an epoch


TEXT = "batch.size"
EPOCHS = {
    "optim.decay_epochs": Derived("optim.decay_every", TEXT),
    "train.epochs": Derived("train.steps", TEXT),
    "train.eval_epochs": Derived("train.eval_every", TEXT),
    "train.save_epochs": Derived("train.save_every", TEXT),
    "step_one.epochs": Derived("step_one.steps", TEXT),
}
for _stage in ("pretrain.snapshot", "pretrain.series"):
    EPOCHS[f"{_stage}.epochs"] = Derived(f"{_stage}.steps", f"{_stage}.batch_size")
    EPOCHS[f"{_stage}.eval_epochs"] = Derived(f"{_stage}.eval_every", f"{_stage}.batch_size")


def declared(config: Any) -> dict[str, Derived]:
    """Return the epoch fields that are not 0: name -> names of the step field and the batch-size field."""
    return {name: derived for name, derived in EPOCHS.items() if field(config, name)}


def resolved(config: Settings, samples: int) -> Settings:
    """Return the configuration with steps derived from epochs, for a train part of `samples` samples."""
    changes = {}
    for name, (steps, batch) in declared(config).items():
        changes[steps] = field(config, name) * count_batches(samples, field(config, batch))
    return config.changed(changes)


def lines(config: Settings, samples: int) -> list[str]:
    """Return a line for each training stage whose length is given in epochs; `config` must be `resolved`."""
    shown = []
    for name, (steps, batch) in declared(config).items():
        training, _, last = name.rpartition(".")
        if last == "epochs" and (config.pretrain.enabled or not name.startswith("pretrain.")):
            batches, total = count_batches(samples, field(config, batch)), field(config, steps)
            shown.append(f"{training}: {field(config, name)} epochs of {batches:,} batches: {total:,} steps")
    return shown


def carried(config: Settings, stored: Mapping[str, Any]) -> Settings:
    """Return `config` with its derived steps taken from `stored`, the content of a workdir's `config.json`."""
    found = {steps: field(stored, steps) for steps, _ in declared(config).values()}
    return config.changed({name: steps for name, steps in found.items() if type(steps) is int and steps > 0})


def field(tree: Any, name: str) -> Any:
    """Return the field with this dotted name in settings, a ConfigDict or `config.json`; None if it is absent."""
    for part in name.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else getattr(tree, part, None)
    return tree
