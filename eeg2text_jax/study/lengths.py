"""Epochs are declared, steps are derived: how many steps a number of epochs is, once the split is known.

A field of epochs that is 0 leaves its field of steps as it is. Any other number replaces the steps by that many epochs
of the split's own train part. An epoch trains every sample once and fills up its last batch (`data/epochs.py`), so
9,951 samples in batches of 32 are 311 batches. The derived steps stand in the workdir's `config.json`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from eeg2text_jax.data.epochs import count_batches


class Derived(NamedTuple):
    """What a field of epochs is turned into."""

    steps: str  # the field that it replaces
    batch: str  # the field with the samples of a batch


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


def declared(config: ConfigDict) -> dict[str, Derived]:
    """The fields of epochs that count, with what each replaces."""
    return {name: derived for name, derived in EPOCHS.items() if field(config, name)}


def resolved(config: ConfigDict, samples: int) -> ConfigDict:
    """The configuration with the steps of every declared number of epochs, for a train part of so many samples."""
    return _with(
        config,
        {
            steps: field(config, name) * count_batches(samples, field(config, batch))
            for name, (steps, batch) in declared(config).items()
        },
    )


def lines(config: ConfigDict, samples: int) -> list[str]:
    """A line on every training whose length is a number of epochs; `config` is resolved."""
    shown = []
    for name, (steps, batch) in declared(config).items():
        training, _, last = name.rpartition(".")
        if last == "epochs" and (config.pretrain.enabled or not name.startswith("pretrain.")):
            batches = count_batches(samples, field(config, batch))
            shown.append(
                f"{training}: {field(config, name)} epochs of {batches:,} batches: {field(config, steps):,} steps"
            )
    return shown


def carried(config: ConfigDict, stored: Mapping[str, Any]) -> ConfigDict:
    """The configuration with the derived steps that a workdir's `config.json` has; they are not declared anew."""
    return _with(
        config,
        {
            steps: found
            for steps, _ in declared(config).values()
            if type(found := field(stored, steps)) is int and found > 0
        },
    )


def field(tree: Any, name: str) -> Any:
    """The value of a dotted field of a configuration, or of its JSON; None where it has none."""
    for part in name.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping | ConfigDict) else None
    return tree


def _with(config: ConfigDict, values: Mapping[str, int]) -> ConfigDict:
    if not values:
        return config
    config = config.copy_and_resolve_references()
    config.update_from_flattened_dict(values)
    return config.lock()
