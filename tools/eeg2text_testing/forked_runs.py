"""Commands in processes of their own that need not import anything: many starts for long checks, at a small price."""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands import cli

ROOT = Path(__file__).parents[2]
TRACEBACK = "Traceback (most recent call last)"
LAST = "the last checkpoint"
APART = ("checkpoints", "tensorboard", "damaged_checkpoint")  # looked at in another way, or not at all
MADE_ANEW = ("finished.json", "report.html", "loss.png")  # from the other files; they have the pace and the date
PACE = {"samples_per_s", "tokens_per_s", "input_wait", "mfu"}  # depend on the machine

# A run of seconds whose checkpoints take 9 MB, most of it positions that nothing computes with.
SMALL = {
    "data.synthetic.sentences": 60,
    "data.synthetic.features": 12,
    "data.synthetic.vocabulary": 40,
    "text.vocab_size": 330,
    "batch.size": 8,
    "batch.buckets": ((20, 56),),
    "model.encoder_layers": 0,
    "model.shape.d_model": 32,
    "model.shape.encoder_layers": 1,
    "model.shape.decoder_layers": 1,
    "model.shape.encoder_attention_heads": 2,
    "model.shape.decoder_attention_heads": 2,
    "model.shape.encoder_ffn_dim": 16,
    "model.shape.decoder_ffn_dim": 16,
    "model.shape.max_position_embeddings": 4096,
    "train.steps": 24,
    "train.eval_every": 6,
    "train.save_every": 4,
    "train.log_every": 1,
    "optim.warmup_steps": 2,
    "decode.num_beams": 2,
    "decode.max_length": 12,
    "decode.batch_size": 4,
    "parallel.mesh": (1, 1),
}


def prepare(cache: Path) -> None:
    """Imports what commands import, and has compiled programs kept in `cache`. Call it once, before any `Forked`."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # JAX has been imported, and has read the environment.
    jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_disable_most_optimizations", True)
    for command in cli.COMMANDS:
        cli.command(command)


def arguments(**changes: object) -> list[str]:
    """Flags of the small configuration, with changes (`__` for dots)."""
    fields = SMALL | {name.replace("__", "."): value for name, value in changes.items()}
    return [f"--config={ROOT}/configs/demo.py:planted", *(f"--config.{name}={value}" for name, value in fields.items())]


def what_counts(workdir: Path, log: Path, *, checkpoint: bool = True) -> dict[str, str]:
    """Digests of what must be the same however a run ended, without what is written of time.

    Made in a process of its own: one that has used JAX can no longer be forked. `log` is where it answers, and
    `checkpoint` says whether the last checkpoint counts: a run that has decoded reads none.
    """
    answer = log.with_suffix(".json")
    if Forked(lambda: answer.write_text(json.dumps(_what_counts(workdir, checkpoint))) and 0, log).wait():
        raise UserError(f"{workdir}: cannot be looked at:\n{log.read_text()}")
    return json.loads(answer.read_text())


def _what_counts(workdir: Path, checkpoint: bool) -> dict[str, str]:
    found: dict[str, Any] = {}
    for path in sorted(workdir.rglob("*")):
        name = str(path.relative_to(workdir))
        apart = any(part.startswith(APART) for part in name.split("/"))
        if path.is_file() and path.name not in MADE_ANEW and not apart:
            found[name] = logged_metrics(path.parent) if path.name == "metrics.jsonl" else path.read_bytes()
    for folder in sorted(workdir.rglob("checkpoints")) if checkpoint else ():
        step, arrays, info = final_checkpoint(folder.parent)
        info["log"] = without_pace(info.get("log", ()))
        name = " of ".join([LAST, *folder.parent.relative_to(workdir).parts])
        found[name] = step, info, {name: sha256(array).hexdigest() for name, array in arrays.items()}
    return {
        name: sha256(value if isinstance(value, bytes) else repr(value).encode()).hexdigest()
        for name, value in found.items()
    }


def differing(one: dict[str, str], two: dict[str, str]) -> list[str]:
    """Names of what is not the same in two answers of `what_counts`."""
    return [name for name in sorted(one.keys() | two.keys()) if one.get(name) != two.get(name)]


class Forked:
    """A function that returns an exit status, under way in a process of its own. Its output goes to `log`."""

    def __init__(self, command: Callable[[], int], log: Path):
        self.log, self._status = log, None
        sys.stdout.flush()
        self.process = os.fork()
        if self.process == 0:
            self._become(command, log)

    def _become(self, command: Callable[[], int], log: Path) -> None:
        status = 70
        try:
            descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            status = command()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def ended(self) -> bool:
        if self._status is None:
            process, status = os.waitpid(self.process, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if process else None
        return self._status is not None

    def wait(self, seconds: float = 600.0) -> int:
        """Its exit status; a process that does not end is killed, and `UserError` says so."""
        end = time.monotonic() + seconds
        while not self.ended():
            if time.monotonic() > end:
                self.kill()
                raise UserError(f"process {self.process} did not end in {seconds:.0f} s; see {self.log}.")
            time.sleep(0.002)
        return self._status

    def send(self, number: signal.Signals) -> None:
        if not self.ended():
            os.kill(self.process, number)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        self.send(number)
        return self.wait()

    def output(self) -> str:
        return self.log.read_text() if self.log.exists() else ""


def final_checkpoint(workdir: Path) -> tuple[int, dict[str, np.ndarray], dict[str, Any]]:
    """The step of the last checkpoint, every array in it by its name, and what was saved beside them."""
    options = ocp.CheckpointManagerOptions(step_prefix="step")
    with ocp.CheckpointManager(workdir / "checkpoints", options=options) as manager:
        step = manager.latest_step()
        parts = ocp.args.Composite(state=ocp.args.StandardRestore(), info=ocp.args.JsonRestore())
        saved = manager.restore(step, args=parts)
    leaves = jax.tree.leaves_with_path(saved["state"])
    return step, {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}, saved["info"]


def logged_metrics(workdir: Path) -> list[dict[str, float]]:
    return without_pace((workdir / "metrics.jsonl").read_text().splitlines())


def without_pace(lines: Iterable[str]) -> list[dict[str, float]]:
    return [{name: value for name, value in json.loads(line).items() if name not in PACE} for line in lines]
