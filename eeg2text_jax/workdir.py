"""The folder of one run: what is where in it, and whose it is."""

import dataclasses
import json

from etils import epath
from ml_collections import ConfigDict

from eeg2text_jax.configuration import differences, to_json
from eeg2text_jax.errors import UserError
from eeg2text_jax.files import partial_of, write_text


@dataclasses.dataclass(frozen=True)
class Workdir:
    """Paths of everything that a run writes."""

    root: epath.Path

    @property
    def config(self) -> epath.Path:
        return self.root / "config.json"

    @property
    def data(self) -> epath.Path:
        return self.root / "data.h5"

    @property
    def split(self) -> epath.Path:
        return self.root / "split.json"

    @property
    def tokenizer(self) -> epath.Path:
        return self.root / "tokenizer"

    @property
    def predictions(self) -> epath.Path:
        return self.root / "predictions.jsonl"

    @property
    def results(self) -> epath.Path:
        return self.root / "results.json"


def open_workdir(root: str, config: ConfigDict) -> Workdir:
    """Makes the folder, or checks that the work in it was begun with the same configuration.

    Raises:
      UserError: the folder belongs to another configuration, or is something else.
    """
    workdir = Workdir(epath.Path(root))
    ours = to_json(config)
    if workdir.config.exists():
        try:
            theirs = json.loads(workdir.config.read_text())
        except ValueError as error:
            raise UserError(
                f"{workdir.config}: is not JSON ({error}); remove {root} or take another folder."
            ) from error
        differing = differences(json.loads(ours), theirs)
        if differing:
            raise UserError(
                f"{root} belongs to another configuration: it differs in {'; '.join(differing[:3])}"
                f"{' and more' if len(differing) > 3 else ''}; take another --workdir or the same configuration."
            )
        return workdir
    unfinished = partial_of(workdir.config).name  # of a run that was killed in its first moment
    if workdir.root.exists() and (
        not workdir.root.is_dir() or any(path.name != unfinished for path in workdir.root.iterdir())
    ):
        raise UserError(f"{root} is not empty and holds no run of eeg2text; take another --workdir.")
    workdir.root.mkdir(parents=True, exist_ok=True)
    write_text(workdir.config, ours)
    return workdir
