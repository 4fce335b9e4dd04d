"""Open a run in its workdir: check the configuration, join hosts, lock the folder, open data and model."""

import contextlib
import io
import json
import os
import tempfile
from collections.abc import Iterator

import jax
from etils import epath

from eeg2text_jax.base.devices import hosts
from eeg2text_jax.base.devices.hosts import initialize, is_main
from eeg2text_jax.base.devices.mesh import product_pace
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import remove
from eeg2text_jax.base.kinds import plain
from eeg2text_jax.data.splits.certificate import size_lines, verdict
from eeg2text_jax.decoding.settings import GenerationSpec, unlike
from eeg2text_jax.instrument.auditing.notices import MIN_JUDGED
from eeg2text_jax.instrument.workdir import (
    OPENED,
    UNKNOWN,
    Workdir,
    check_configuration,
    check_ours,
    differences,
    find_workdir,
    forget,
    lock_workdir,
    product,
    read_configuration,
    read_object,
    stage_of,
    write_configuration,
)
from eeg2text_jax.judge.model_metrics import check_configured
from eeg2text_jax.models.backbones.build import random_spec
from eeg2text_jax.models.functional import training_flops
from eeg2text_jax.models.pretrained.folder import checkpoint_folder
from eeg2text_jax.training.configuration import load_config
from eeg2text_jax.training.loop import bytes_of_an_arm, frozen_bytes
from eeg2text_jax.training.sections import Settings, epoch_fields, field_at, length_lines, notes, with_stored_steps
from eeg2text_jax.training.study import Study, arms, chosen_layer, open_study, placement_of


@contextlib.contextmanager
def open_run(config: Settings, root: str, make: bool = True) -> Iterator[Study]:
    """Join the other hosts, lock a workdir until the block ends, and yield its study.

    `root` is a folder that all hosts share, or a bucket URL. Missing files are made if `make`; else training must have
    begun, and nothing is changed. UserError if configuration, data or folder are not usable.
    """
    initialize(config.parallel)
    hosts.check_code(config.document)
    if config.compilation_cache and not jax.config.jax_compilation_cache_dir:
        jax.config.update("jax_compilation_cache_dir", str(epath.Path(config.compilation_cache).expanduser()))
    with contextlib.ExitStack() as stack:
        root = hosts.workdir_at(root, stack)

        def open_here() -> Study:
            check_before(config)
            if not make:
                find_workdir(root)
            if is_main():
                stack.enter_context(lock_workdir(root))
            return _open(config, root) if make else open_finished(config, root)

        study = hosts.main_first(open_here)
        hosts.check_data(data=study.data.digest(), split=study.split.digest(), tokenizer=study.tokenizer_digest)
        for note in notes(study.config):
            print(note)
        yield study
    hosts.wait_for_all("the first host has closed the workdir")


def check_before(config: Settings) -> None:
    """Check, before any file is made, fields whose check needs devices or a model; UserError for a bad one."""
    check_configured(config)
    for n_arms in range(1, len(arms(config.grid)) + 1):  # fewer arms may fit the mesh
        with contextlib.suppress(UserError):
            placement_of(config, n_arms)
            break
    else:
        placement_of(config, len(arms(config.grid)))
    if config.objective == "contrastive" and config.contrastive.text:
        chosen_layer(config.contrastive.text, config.contrastive.layer)
    for checkpoint in filter(None, (config.model.encoder_checkpoint, config.model.checkpoint)):
        checkpoint_folder(checkpoint)
    if not config.model.checkpoint:
        random_spec(config.model.backbone, dict(config.model.shape), AnyTokenizer())


class AnyTokenizer:
    """A stand-in tokenizer, with which a model's shape can be computed before the run has its own."""

    bos_token_id = cls_token_id = 0
    pad_token_id = 1
    eos_token_id = sep_token_id = 2

    def __len__(self) -> int:
        return 3


def _open(config: Settings, root: str) -> Study:
    """Return the study and make missing files; remove a new `config.json` if that fails."""
    workdir = Workdir(epath.Path(root))
    new = not workdir.config.exists()
    try:
        open_workdir(root, config)
        workdir.check(*OPENED)
        if is_main():
            workdir.unrecord(*(name for name in OPENED if not (workdir.root / name).exists()))
        study = _checked_study(config, workdir)
        texts = is_main() and config.objective == "generate"
        if texts and (note := generation_note(config.model.checkpoint, study.generation)):
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
    """Return the study of a folder with a checkpoint of this configuration, else UserError; change nothing."""
    workdir = find_workdir(root)
    resumed(config, workdir)
    own_data = () if config.data.source.endswith(".h5") else (workdir.data,)
    for path in (*own_data, workdir.split, workdir.tokenizer):
        if not path.exists():
            raise UserError(f"{path}: there is no such file, so training has not begun; `eeg2text train` makes it.")
    if not product(workdir, "training"):
        raise UserError(f"{root}: has no checkpoint; `eeg2text train` makes one.")
    workdir.check(*OPENED, workdir.metrics.name)
    return _checked_study(config, workdir)


def _checked_study(config: Settings, workdir: Workdir) -> Study:
    study = open_study(config, workdir)
    check_derived(workdir, study.config, len(study.split.parts["train"]))
    _ = study.generation  # raises UserError if the settings of decoding do not fit the model
    return study


def open_workdir(root: str, config: Settings) -> Workdir:
    """Create the workdir, or check it against the configuration and tidy it; write `config.json`."""
    workdir = Workdir(epath.Path(root))
    check_ours(workdir.root)
    if workdir.config.exists():
        config = resumed(config, workdir)
        for pattern in (".*.partial", ".*.lock", "*/.*.partial", "*/*/.*.partial"):  # left by killed processes
            for path in workdir.root.glob(pattern):
                remove(path)
    workdir.root.mkdir(parents=True, exist_ok=True)
    write_configuration(workdir, config.document)
    return workdir


def resumed(config: Settings, workdir: Workdir) -> Settings:
    """Return the configuration with the numbers of steps that `config.json` has for its epochs.

    UserError if a field on which a finished stage depends has another value there.
    """
    config = with_stored_steps(config, read_configuration(workdir))
    check_configuration(workdir, config.document)
    return config


def check_derived(workdir: Workdir, config: Settings, samples: int) -> None:
    """Raise UserError if the steps that epochs give for `samples` are not those of the training."""
    if not (made := product(workdir, "training")):
        return
    stored = read_configuration(workdir)
    for name, (steps, _) in epoch_fields(config).items():
        now, there = field_at(config, steps), field_at(stored, steps)
        if now != there and stage_of(steps):
            raise UserError(
                f"{workdir.split}: is another split than {made} was trained on: {name}={field_at(config, name)} is "
                f"{steps}={now} with its {samples} samples in the train part, expected {there}; restore the file or "
                "take another --workdir."
            )


def generation_note(checkpoint: str, spec: GenerationSpec) -> str:
    """Return a note on how a checkpoint's `generation_config.json` differs from `spec`, or ""."""
    if not checkpoint or not (path := checkpoint_folder(checkpoint) / "generation_config.json").exists():
        return ""
    names = ", ".join(unlike(read_object(path, "restore the file, or remove it"), spec))
    return f"{path}: is ignored in favour of config.decode, from which it differs in {names}." if names else ""


def dry_run(config: Settings, root: str) -> str:
    """Return what a run would do and cost; data are prepared in a temporary folder, and `root` is not written."""
    check_before(config)
    with tempfile.TemporaryDirectory(prefix="eeg2text_dry_") as folder:
        with contextlib.redirect_stdout(io.StringIO()):
            study = open_study(config, open_workdir(f"{folder}/run", config))
        differing = differences(study.config.document, plain(load_config("default")))
        about = [f"configuration: {len(differing)} fields differ from the defaults"]
        about += [f"  {line.replace(UNKNOWN, 'no default').replace('there ', 'default ')}" for line in differing]
        about += [*data_lines(study), *cost_lines(study)]
    there = "which has files already, and would be resumed or refused" if os.path.exists(root) else "a new folder"
    return "\n".join([*about, f"workdir: {root}, {there}; nothing was made."])


def data_lines(study: Study) -> list[str]:
    """Return lines on samples, split, leaks, and the steps of an epoch."""
    data, parts = study.data, study.split.parts
    certificate = json.loads(study.workdir.split.read_text(encoding="utf8"))
    texts = {name: len(set(data.sentence[rows])) for name, rows in parts.items()}
    listed = ", ".join(f"{name} {len(rows)} samples of {texts[name]} texts" for name, rows in parts.items())
    lines = [
        f"data: {len(data)} samples of {len(set(data.subject))} subjects, {data.n_features} features a position "
        f"({data.features_are.partition(';')[0]})",
        f"split {study.config.split.method}: {listed}; {verdict(certificate)}",
        *size_lines(certificate),
    ]
    if texts["test"] < MIN_JUDGED:
        few = f"a verdict needs {MIN_JUDGED}: add data, or test each text once by --folds=5"
        lines.append(f"note: {texts['test']} test texts; {few}")
    return [*lines, *length_lines(study.config, len(parts["train"]))]


def cost_lines(study: Study) -> list[str]:
    """Return lines on arms, parameters, least memory, and the time of matrix products."""
    config, model = study.config, study.model
    weights = sum(leaf.size for leaf in jax.tree.leaves(model.shapes))
    least = len(study.arms) * bytes_of_an_arm(study) + frozen_bytes(study)
    words, tokens = config.batch.buckets[-1]
    flops = config.train.steps * len(study.arms) * training_flops(model, config.batch.size, words, tokens)
    pace = product_pace()
    return [
        f"arms: {', '.join(map(str, study.arms))}; {config.train.steps} steps of {config.batch.size} samples; tested "
        f"with {', '.join(config.grid.eval_conditions)}",
        f"model: {weights:,} parameters an arm; memory at least {least / 2**30:.2f} GiB for all arms (parameters, "
        "gradient, optimizer, best parameters; activations come on top, `eeg2text preflight` counts them)",
        f"time: at most {flops / pace / 60:.1f} min of matrix products in training at {pace / 1e9:.0f} GFLOP/s, "
        f"measured on {jax.devices()[0].device_kind}; compilation, decoding and scoring come on top",
    ]
