"""The configuration that a run was begun with, `config.json` of its folder, and what of it may change.

A field is fixed once something that depends on it is finished (see `configuration.STAGES`), and may change until then.
"""

import json
from typing import Any

from etils import epath
from ml_collections import ConfigDict

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import remove, write_text
from eeg2text_jax.study import lengths
from eeg2text_jax.study.configuration import STAGES, differences, from_stage, stage_of, to_json
from eeg2text_jax.study.ranges import RENAMED
from eeg2text_jax.study.workdir import Workdir, check_ours, read_object


def open_workdir(root: str, config: ConfigDict) -> Workdir:
    """Makes the folder, or checks that what is finished in it was made with the same configuration.

    Of what is not finished, remains of a killed process are removed, and the configuration may be another one: it takes
    the place of `config.json`.

    Raises:
      UserError: the folder belongs to another configuration, or is something else.
    """
    workdir = Workdir(epath.Path(root))
    check_ours(workdir.root)
    if workdir.config.exists():
        check_configuration(workdir, config)
        config = lengths.carried(config, read_configuration(workdir))
        _sweep(workdir.root)
    workdir.root.mkdir(parents=True, exist_ok=True)
    write_configuration(workdir, config)
    return workdir


def read_configuration(workdir: Workdir) -> dict[str, Any]:
    """The content of `config.json`, with today's names of fields.

    Raises:
      UserError: it is not JSON.
    """
    content = read_object(workdir.config, f"put the file back, remove {workdir.root} or take another --workdir")
    for old, new in RENAMED.items():
        (section, name), (_, renamed) = old.split("."), new.split(".")
        if name in content.get(section, {}):
            content[section][renamed] = content[section].pop(name)
    return content


def check_configuration(workdir: Workdir, config: ConfigDict) -> None:
    """
    Raises:
      UserError: a field differs on which something depends that is finished; it says which, and what may change.
    """
    stored = read_configuration(workdir)
    differing = differences(json.loads(to_json(lengths.carried(config, stored))), stored)
    products = {stage: product(workdir, stage) for stage in STAGES}
    fixed: dict[str, list[str]] = {}
    for difference in differing:
        later = from_stage(stage_of(difference.partition(" ")[0]))
        made = next((products[stage] for stage in later if products[stage]), None)
        if made:
            fixed.setdefault(made, []).append(difference)
    if not fixed:
        return
    last = [stage for stage in STAGES if products[stage]][-1]
    free = [field for stage in from_stage(last)[1:] for field in STAGES[stage].fields]
    what = "; ".join(f"{made} was made with {_some(fields)}" for made, fields in fixed.items())
    raise UserError(
        f"{workdir.root} belongs to another configuration (its config.json): {what}; take another --workdir or these "
        f"values. What may change here: {', '.join(free)}."
    )


def check_derived(workdir: Workdir, config: ConfigDict, samples: int) -> None:
    """Compares the steps derived from the split with those that training was begun with.

    Raises:
      UserError: they differ, as the train part has another number of samples.
    """
    if not workdir.config.exists() or not (made := product(workdir, "training")):
        return
    stored = read_configuration(workdir)
    for name, (steps, _) in lengths.declared(config).items():
        now, there = lengths.field(config, steps), lengths.field(stored, steps)
        if now != there and stage_of(steps):
            raise UserError(
                f"{workdir.split}: is another split than {made} was trained on: {name}={lengths.field(config, name)} "
                f"is {steps}={now} with its {samples} samples in the train part, expected {there}; put the split back "
                "or take another --workdir."
            )


def write_configuration(workdir: Workdir, config: ConfigDict) -> None:
    """Writes `config.json`, unless it says the same already."""
    text = to_json(config)
    if not workdir.config.exists() or workdir.config.read_bytes() != text.encode():
        write_text(workdir.config, text)


def forget(workdir: Workdir) -> None:
    """Takes back the configuration of a run that was refused before anything was made."""
    if not any(product(workdir, stage) for stage in STAGES):
        remove(workdir.config)


def product(workdir: Workdir, stage: str) -> str | None:
    """What a stage has left in the folder; None where it has not been finished."""
    found = (path for pattern in STAGES[stage].products for path in sorted(workdir.root.glob(pattern)))
    whole = (path for path in found if "tmp" not in path.name)  # orbax's name for a save under way
    return next((str(path.relative_to(workdir.root)) for path in whole), None)


def _some(fields: list[str]) -> str:
    return f"{', '.join(fields[:3])}{' and more' if len(fields) > 3 else ''}"


def _sweep(root: epath.Path) -> None:
    """Removes what killed processes had begun to write."""
    for pattern in (".*.partial", ".*.lock", "*/.*.partial", "*/*/.*.partial"):
        for path in root.glob(pattern):
            remove(path)
