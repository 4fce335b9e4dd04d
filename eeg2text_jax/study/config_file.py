"""Read, write and check `config.json` of a workdir.

A field may change on a resume until the first stage that depends on it is finished, see `places.STAGES`.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

from etils import epath

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import remove, write_text
from eeg2text_jax.study import lengths
from eeg2text_jax.study.configuration import differences, to_json
from eeg2text_jax.study.places import PLACES, STAGES, from_stage, portable, read_configuration, stage_of
from eeg2text_jax.study.sections import Settings
from eeg2text_jax.study.workdir import Workdir, check_ours


def open_workdir(root: str, config: Settings) -> Workdir:
    """Create the workdir, or check that its finished stages were made with the same configuration; write `config.json`.

    Partial files of killed processes are removed. Raises UserError if the folder is not a workdir, or if a field on
    which a finished stage depends has another value in `config.json`.
    """
    workdir = Workdir(epath.Path(root))
    check_ours(workdir.root)
    if workdir.config.exists():
        check_configuration(workdir, config)
        config = lengths.carried(config, read_configuration(workdir))
        for pattern in (".*.partial", ".*.lock", "*/.*.partial", "*/*/.*.partial"):  # left by killed processes
            for path in workdir.root.glob(pattern):
                remove(path)
    workdir.root.mkdir(parents=True, exist_ok=True)
    write_configuration(workdir, config.document)
    return workdir


def check_configuration(workdir: Workdir, config: Settings) -> None:
    """Raise UserError if `config` and `config.json` differ in a field that a finished stage depends on."""
    stored = read_configuration(workdir)
    differing = differences(json.loads(to_json(lengths.carried(config, stored).document)), stored, PLACES)
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
    what = "; ".join(
        f"{made} was made with {', '.join(fields[:3])}{' and more' if len(fields) > 3 else ''}"
        for made, fields in fixed.items()
    )
    raise UserError(
        f"{workdir.root} belongs to another configuration (its config.json): {what}; take another --workdir or the "
        f"values marked 'there'. What may change here: {', '.join(free)}."
    )


def check_derived(workdir: Workdir, config: Settings, samples: int) -> None:
    """Raise UserError if the steps that `config` derives from epochs are not those with which training began.

    They differ if the size of the train part, now `samples`, has changed.
    """
    if not workdir.config.exists() or not (made := product(workdir, "training")):
        return
    stored = read_configuration(workdir)
    for name, (steps, _) in lengths.declared(config).items():
        now, there = lengths.field(config, steps), lengths.field(stored, steps)
        if now != there and stage_of(steps):
            raise UserError(
                f"{workdir.split}: is another split than {made} was trained on: {name}={lengths.field(config, name)} "
                f"is {steps}={now} with its {samples} samples in the train part, expected {there}; restore the file "
                "or take another --workdir."
            )


def write_configuration(workdir: Workdir, document: Mapping[str, Any], places: Collection[str] = PLACES) -> None:
    """Write a configuration to `config.json`, unless the file is already identical; fields `places` hold paths."""
    text = to_json(portable(json.loads(to_json(document)), workdir.root, places))
    if not workdir.config.exists() or workdir.config.read_bytes() != text.encode():
        write_text(workdir.config, text)


def forget(workdir: Workdir) -> None:
    """Remove `config.json` of a run that failed, unless a stage of the run has made a file."""
    if not any(product(workdir, stage) for stage in STAGES):
        remove(workdir.config)


def product(workdir: Workdir, stage: str) -> str | None:
    """Return the name of the first file that a stage has made in the workdir; None if it has made none."""
    found = (path for pattern in STAGES[stage].products for path in sorted(workdir.root.glob(pattern)))
    finished = (path for path in found if "tmp" not in path.name)  # names of unfinished orbax checkpoints contain "tmp"
    return next((str(path.relative_to(workdir.root)) for path in finished), None)
