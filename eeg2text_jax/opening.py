"""Open a run in its workdir: check the configuration, join the hosts, lock the folder, open data and model."""

import contextlib
import json
from collections.abc import Iterator

import jax
from etils import epath

from eeg2text_jax.backbones.build import random_spec
from eeg2text_jax.decoding.cells import check_decoding
from eeg2text_jax.errors import UserError, first_line
from eeg2text_jax.files import parse_json
from eeg2text_jax.model_metrics import check_configured
from eeg2text_jax.parallel.distributed import (
    check_code,
    check_data,
    initialize,
    is_main,
    main_first,
    wait_for_all,
    workdir_at,
)
from eeg2text_jax.pretrained.folder import checkpoint_folder
from eeg2text_jax.search.settings import GenerationSpec, unlike
from eeg2text_jax.study.config_file import check_configuration, forget, open_workdir, product, write_configuration
from eeg2text_jax.study.configuration import to_json
from eeg2text_jax.study.grid import arms, placement_of
from eeg2text_jax.study.ranges import notes
from eeg2text_jax.study.sections import Settings
from eeg2text_jax.study.study import Study, open_study
from eeg2text_jax.study.text_targets import check_encoder
from eeg2text_jax.study.workdir import OPENED, Workdir, find_workdir, lock_workdir


@contextlib.contextmanager
def open_run(config: Settings, root: str, make: bool = True) -> Iterator[Study]:
    """Join the other hosts, lock a workdir until the block ends, and yield its study (data, split, model, ...).

    `config` has settings from `ranges.checked_settings`; `root` is a folder that all hosts share, or a bucket URL.
    Missing files of the workdir are made if `make`; otherwise training must have begun, and nothing is changed. Raises
    UserError if the configuration, the data or the folder is not usable.
    """
    initialize(config.parallel)
    check_code(json.loads(to_json(config.document)))
    if config.compilation_cache and not jax.config.jax_compilation_cache_dir:
        jax.config.update("jax_compilation_cache_dir", str(epath.Path(config.compilation_cache).expanduser()))
    with contextlib.ExitStack() as stack:
        root = workdir_at(root, stack)

        def open_here() -> Study:
            check_before(config)
            if not make:
                find_workdir(root)
            if is_main():
                stack.enter_context(lock_workdir(root))
            return _open(config, root) if make else open_finished(config, root)

        study = main_first(open_here)
        check_data(data=study.data.digest(), split=study.split.digest(), tokenizer=study.tokenizer_digest)
        for note in notes(study.config):
            print(note)
        yield study
    wait_for_all("the first host has closed the workdir")


def check_before(config: Settings) -> None:
    """Check the fields whose check needs devices or a model, before any file is made; raise UserError for a bad one."""
    check_configured(config)
    _check_mesh(config, len(arms(config.grid)))
    if config.objective == "contrastive":
        check_encoder(config.contrastive)
    if config.model.checkpoint:
        checkpoint_folder(config.model.checkpoint)
    else:
        random_spec(config.model.backbone, dict(config.model.shape), AnyTokenizer())


def _check_mesh(config: Settings, n_arms: int) -> None:
    """Raise UserError if neither all arms nor any wave (a number of arms trained together) fits the device mesh."""
    for fewer in range(n_arms - 1, 0, -1):
        with contextlib.suppress(UserError):
            placement_of(config, fewer)
            return
    placement_of(config, n_arms)


class AnyTokenizer:
    """A stand-in tokenizer, with which a model's shape can be computed before the run has its own tokenizer."""

    bos_token_id = cls_token_id = 0
    pad_token_id = 1
    eos_token_id = sep_token_id = 2

    def __len__(self) -> int:
        return 3


def _open(config: Settings, root: str) -> Study:
    """Return the study and make missing files of the workdir; remove a new `config.json` if that fails."""
    workdir = Workdir(epath.Path(root))
    new = not workdir.config.exists()
    try:
        open_workdir(root, config)
        workdir.check(*OPENED)
        if is_main():
            workdir.unrecord(*(name for name in OPENED if not (workdir.root / name).exists()))
        study = open_study(config, workdir)
        spec = check_decoding(config.decode, study.model)
        if is_main() and config.objective == "generate" and (note := generation_note(config.model.checkpoint, spec)):
            print(note)
    except BaseException:
        if new and is_main():
            forget(workdir)
        raise
    if is_main():
        write_configuration(workdir, study.config.document)  # which now has steps in place of epochs
        workdir.record(*workdir.unrecorded(*OPENED))
    return study


def open_finished(config: Settings, root: str) -> Study:
    """Return the study (data, split, model, ...) of a folder that has a checkpoint; change nothing.

    Raises UserError if a file is missing, or the folder belongs to another configuration.
    """
    workdir = find_workdir(root)
    check_configuration(workdir, config)
    own_data = () if config.data.source.endswith(".h5") else (workdir.data,)
    for path in (*own_data, workdir.split, workdir.tokenizer):
        if not path.exists():
            raise UserError(f"{path}: there is no such file, so training has not begun; `eeg2text train` makes it.")
    if not product(workdir, "training"):
        raise UserError(f"{root}: has no checkpoint; `eeg2text train` makes one.")
    workdir.check(*OPENED, workdir.metrics.name)
    study = open_study(config, workdir)
    check_decoding(config.decode, study.model)
    return study


def generation_note(checkpoint: str, spec: GenerationSpec) -> str:
    """Return a note on the settings in which a checkpoint's `generation_config.json` differs from `spec`; "" if none.

    Raises UserError if the file is not a JSON object.
    """
    if not checkpoint or not (path := checkpoint_folder(checkpoint) / "generation_config.json").exists():
        return ""
    try:
        stored = parse_json(path.read_text(encoding="utf8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({first_line(error)}); restore the file, or remove it.") from error
    if not isinstance(stored, dict):
        raise UserError(
            f"{path}: contains {stored!r:.60}; expected a JSON object of settings; restore the file, or remove it."
        )
    names = ", ".join(unlike(stored, spec))
    return f"{path}: is ignored in favour of config.decode, from which it differs in {names}." if names else ""
