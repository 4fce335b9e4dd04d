"""`eeg2text bench --config=NAME`: throughput of the programs that `eeg2text run` runs, on all devices of all hosts.

No step waits for another, except that metrics are read one step later, as in a run. Without the configuration's
recordings, random ones are made.
"""

import contextlib
import glob
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
from etils import epath

from eeg2text_jax.base.devices.arms import Divided
from eeg2text_jax.base.devices.hosts import is_main, to_host
from eeg2text_jax.base.devices.mesh import chip_of_device, put_batch
from eeg2text_jax.base.errors import UserError, first_line
from eeg2text_jax.base.files import parse_json, write_text
from eeg2text_jax.base.packages import in_words, installed_version
from eeg2text_jax.base.stores.buckets import is_address
from eeg2text_jax.commands.preflight.programs import VOCABULARY, feature_shape, made_up_channels
from eeg2text_jax.data.batches import batch_shapes
from eeg2text_jax.data.data_writer import DataWriter, WaveWriter
from eeg2text_jax.data.source import Sample
from eeg2text_jax.instrument.workdir import differences
from eeg2text_jax.models.functional import training_flops
from eeg2text_jax.runs.cells import BothModes, decoder_of, slices_of
from eeg2text_jax.runs.opening import open_run
from eeg2text_jax.training.conditions import COPIES
from eeg2text_jax.training.grid_program import ALONE, make_program
from eeg2text_jax.training.loop import PreparedStep, arms_together, batches_of, make_initial_state
from eeg2text_jax.training.metrics_log import BatchWork
from eeg2text_jax.training.sections import Settings
from eeg2text_jax.training.step import TrainState
from eeg2text_jax.training.study import Study

MADE_UP, SENTENCES = "made_up.h5", 1200  # file and samples
# Word counts of ZuCo 1.0's sentences (SR, NR, TSR) follow a gamma distribution with mean 19.8.
WORDS_SHAPE, WORDS_SCALE, LONGEST = 4.15, 4.78, 56
FIGURES = {  # name in the JSON -> (unit, whether more is better)
    "samples_per_second": ("samples/s", True),
    "tokens_per_second": ("tokens/s", True),
    "p50_ms": ("ms of a step or batch, p50", False),
    "p90_ms": ("ms, p90", False),
    "mfu": ("MFU", True),
    "input_wait": ("input wait", False),
    "memory_bytes": ("bytes of a device", False),
    "compile_seconds": ("s to compile", False),
    "input_samples_per_second": ("samples/s made by this host's input", True),
}
PACKAGES = (
    "jax", "jaxlib", "jax-cuda12-plugin", "libtpu", "flax", "optax", "torch", "transformers", "ctranslate2", "numpy",
)  # fmt: skip
GPU_FIELDS = (
    "name", "driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.draw", "power.limit",
    "temperature.gpu", "memory.used",
)  # fmt: skip


def bench(config: Settings, steps: int, out: str, baseline: str) -> None:
    """Measure a configuration; print ten lines, and what differs from the file `baseline`; write the file `out`."""
    old = read_baseline(baseline) if baseline else None
    report = measure(config, steps)
    if not is_main():
        return
    print(*lines(report), sep="\n")
    if old is not None:
        print("", *compared(report, old), sep="\n")
    if out:
        write_text(epath.Path(out), json.dumps(report, indent=1) + "\n")


def measure(config: Settings, steps: int) -> dict[str, Any]:
    """Return the figures of training and decoding of a configuration; `steps` are timed."""
    with tempfile.TemporaryDirectory(prefix="eeg2text_bench_") as folder:
        made_up = not has_recordings(config.data.source)
        config = with_made_up_data(config, Path(folder)) if made_up else config
        with (
            contextlib.redirect_stdout(sys.stderr),
            contextlib.chdir(folder) if made_up else contextlib.nullcontext(),
            open_run(config.changed({**ALONE, "compilation_cache": ""}), f"{folder}/run") as whole,
        ):
            study = arms_together(whole)[0]
            state, prepared, trained = train(study, steps)
            report = {
                "machine": {**describe_machine(), "hosts": jax.process_count(), "mesh": str(study.placement)},
                "config": config.document,
                "data": "made up" if made_up else "its own",
                "arms": [str(arm) for arm in study.arms],
                "steps": steps,
                "train": trained,
            }
            if study.config.objective == "generate":
                frozen = prepared.arrays.frozen
                params = state.params if frozen is None else Divided(state.params, frozen)
                report["decode"] = decode(study, params, steps)
    return report


def has_recordings(source: str) -> bool:
    """Whether the recordings that `data.source` names can be read, or are simulated."""
    return source in ("synthetic", "synthetic-fmri") or is_address(source) or bool(glob.glob(source, recursive=True))


def with_made_up_data(config: Settings, folder: Path) -> Settings:
    """Return the configuration with random weights of the checkpoint's shape, and made-up recordings.

    They are the file MADE_UP in `folder`: its name has no folder, so that all hosts have one configuration.
    """
    shape = feature_shape(config.data)
    if len(shape) != 1:
        raise UserError(f"data.source = {config.data.source!r}: there is no such file; prepare it to measure volumes.")
    rng = np.random.default_rng(0)
    words = np.array([f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("n", "rt", "s", "lk", "m", "nd")])
    waves = config.data.raw.is_waves
    longest = config.data.max_words if waves else LONGEST  # samples, or words
    with (WaveWriter if waves else DataWriter)(folder / MADE_UP, shape[0], "random") as writer:
        if waves:
            channels = made_up_channels(config.data)
            places = [[name, *place] for name, place in zip(channels.names, channels.places, strict=True)]
            writer.provenance = {"sfreq": channels.rate or 200.0, "channels": channels.names, "electrodes": places}
        for number, count in enumerate(sentence_lengths(SENTENCES).tolist()):
            features = rng.standard_normal((-(-count * longest // LONGEST), *shape), np.float32)
            text = " ".join(rng.choice(words, count))
            writer.add(Sample(features, text, "made-up", "made-up", number, "made-up", 60.0 * number, 30.0))
    changes: dict[str, Any] = {"data.source": MADE_UP, "model.checkpoint": "", "model.encoder_checkpoint": ""}
    if config.text.tokenizer and Path(config.text.tokenizer).is_dir():
        changes["text.tokenizer"] = str(Path(config.text.tokenizer).resolve())
    if config.model.backbone in VOCABULARY:
        changes["model.shape.vocab_size"] = VOCABULARY[config.model.backbone]
    return config.changed(changes)


def sentence_lengths(count: int) -> np.ndarray:
    """Return random numbers of words of sentences, distributed as ZuCo's, 1 to 56."""
    drawn = np.random.default_rng(1).gamma(WORDS_SHAPE, WORDS_SCALE, count)
    return drawn.round().clip(1, LONGEST).astype(int)


def train(study: Study, steps: int) -> tuple[TrainState, PreparedStep, dict[str, Any]]:
    """Compile and time training steps; return the last state, the prepared step and the figures."""
    mesh, config, size = study.placement.mesh, study.config, study.config.batch.size
    program = make_program(config, study.model, study.arms, mesh)
    state, prepared = make_initial_state(study, program), PreparedStep(study, program)
    state, arrays, step = prepared.placed(state), prepared.arrays, cast(Any, prepared.step)
    stream = iter(batches_of(study, 1000 + steps))
    begun, compiled, memory = time.perf_counter(), {}, 0
    seeds = len({arm.seed for arm in study.arms})
    optional = [name for name in next(stream) if name != "whole"]
    for bucket in config.batch.buckets:
        shapes = batch_shapes(bucket, size, study.data.feature_shape, *optional, seeds=seeds)
        blank = {name: np.zeros(shape.shape, shape.dtype) for name, shape in shapes.items()}
        taken = step.lower(state, put_batch(blank, mesh, seeds=True), arrays).compile()
        sizes = taken.memory_analysis()
        needed = sizes.argument_size_in_bytes + sizes.temp_size_in_bytes + sizes.output_size_in_bytes
        compiled[shapes["labels"].shape], memory = taken, max(memory, needed - sizes.alias_size_in_bytes)
    seconds_to_compile = time.perf_counter() - begun
    for taken in compiled.values():  # the first execution loads the program
        batch = next(batch for batch in stream if compiled[batch["labels"].shape] is taken)
        state, _ = taken(state, put_batch(batch, mesh, size, seeds=True), arrays)
    jax.block_until_ready(state)
    works: list[BatchWork] = []
    waited, moments, before = 0.0, [time.perf_counter()], None
    for _ in range(steps):
        asked = time.perf_counter()
        batch = next(stream)
        waited += time.perf_counter() - asked
        state, metrics = compiled[batch["labels"].shape](state, put_batch(batch, mesh, size, seeds=True), arrays)
        if before is not None:
            jax.block_until_ready(before)
            moments.append(time.perf_counter())
        works, before = [*works, BatchWork.of(batch, study.model.pad_token)], metrics
    jax.block_until_ready(state)
    moments.append(time.perf_counter())
    seconds = moments[-1] - moments[0]
    figures = {"mfu": mfu(study, works, seconds), "input_wait": waited / seconds, "memory_bytes": memory}
    figures |= {"compile_seconds": seconds_to_compile, "input_samples_per_second": input_rate(study, steps)}
    return state, prepared, {**rates(works, moments), **figures}


def rates(works: Sequence[BatchWork], moments: Sequence[float]) -> dict[str, float]:
    """Return the rates of one arm and the milliseconds of a step, from the moments at which steps ended."""
    seconds = moments[-1] - moments[0]
    return {
        "samples_per_second": sum(work.samples for work in works) / seconds,
        "tokens_per_second": sum(work.tokens for work in works) / seconds,
        **dict(zip(("p50_ms", "p90_ms"), np.percentile(1e3 * np.diff(moments), (50, 90)).tolist(), strict=True)),
    }


def mfu(study: Study, works: Sequence[BatchWork], seconds: float) -> float | None:
    """Return the share of the devices' peak FLOP/s that the steps of all arms took; None if the peak is unknown."""
    chip = chip_of_device(jax.devices()[0].device_kind)
    if chip is None:
        return None
    flops = sum(training_flops(study.model, work.rows, work.words, work.positions) for work in works)
    return len(study.arms) * flops / seconds / (chip.flops * study.placement.mesh.size)


def input_rate(study: Study, steps: int) -> float:
    """Return the samples that this host's input makes and places in a second, while nothing computes."""
    stream, size = iter(batches_of(study, steps + 5)), study.config.batch.size
    for _ in range(5):  # what was prefetched
        put_batch(next(stream), study.placement.mesh, size, seeds=True)
    begun = time.perf_counter()
    for batch in stream:
        jax.block_until_ready(put_batch(batch, study.placement.mesh, size, seeds=True))
    return steps * size / (time.perf_counter() - begun)


def decode(study: Study, params: Any, steps: int) -> dict[str, Any]:
    """Compile and time batches of decoding in both modes, under the first condition of the grid that feeds a model."""
    mesh = study.placement.mesh
    condition = next((name for name in study.config.grid.eval_conditions if name not in COPIES), "eeg")
    run = decoder_of(study, params, mesh)
    slices, decode_slice = slices_of(study, study.split.parts["test"], condition, mesh, run)
    begun = time.perf_counter()
    for part in {part.words: part for part in slices}.values():
        jax.block_until_ready(decode_slice(part))
    compiling = time.perf_counter() - begun
    works: list[BatchWork] = []
    moments, before = [time.perf_counter()], None
    for part in (*(slices * steps)[:steps], None):
        batch: BothModes | None = decode_slice(part) if part else None
        if before is not None:  # wait for it while the devices compute the next one
            lengths = to_host(before.free_running.lengths)[0]
            works.append(BatchWork(lengths.shape[0], int(lengths.sum()), 0, 0, lengths.shape[0]))
            moments.append(time.perf_counter())
        before = batch
    return {
        **rates(works, moments),
        "memory_bytes": (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use"),  # None: not known
        "compile_seconds": compiling,
        "beams": study.config.decode.num_beams,
    }


def lines(report: dict[str, Any]) -> list[str]:
    """Return the report as at most ten lines."""
    machine, config, train = report["machine"], report["config"], report["train"]
    devices = f"{machine['mesh']}, {machine['hosts']} hosts" if machine["hosts"] > 1 else machine["mesh"]
    share = "unknown (the table of chips has no such device)" if train["mfu"] is None else f"{train['mfu']:.1%}"
    text_lines = [
        f"{devices}; {machine['processor']}; {in_words(machine['versions'])}",
        f"{config['model']['backbone']}, {config['model']['dtype']}; arms {', '.join(report['arms'])}; batch "
        f"{config['batch']['size']}, of decoding {config['decode']['batch_size']}; data {report['data']}",
        f"train   {train['samples_per_second']:.2f} samples/s, {train['tokens_per_second']:.1f} tokens/s of each arm",
        f"train   a step takes {train['p50_ms']:.1f} ms (p90 {train['p90_ms']:.1f}); {report['steps']} steps",
        f"train   MFU {share}; {train['input_wait']:.1%} of the time waits for input",
        f"train   {_gib(train['memory_bytes'])} a device; all buckets compiled in {train['compile_seconds']:.1f} s",
        f"input   {train['input_samples_per_second']:.0f} samples/s, made by one host while nothing else computes",
    ]
    if decode := report.get("decode"):
        text_lines += [
            f"decode  {decode['samples_per_second']:.2f} sentences/s and {decode['tokens_per_second']:.1f} tokens/s of "
            f"each arm, {decode['beams']} beams and teacher forcing",
            f"decode  a batch takes {decode['p50_ms']:.1f} ms (p90 {decode['p90_ms']:.1f})",
            f"decode  {_gib(decode['memory_bytes'])} a device at most so far; compiled in "
            f"{decode['compile_seconds']:.1f} s, with the first batches",
        ]
    return text_lines


def _gib(size: int | None) -> str:
    return "an unknown part of the memory of" if size is None else f"{size / 2**30:.2f} GiB of"


EXPECTED = "expected what `eeg2text bench --config=... --json=FILE` wrote"


def read_baseline(path: str) -> dict[str, Any]:
    """Return an earlier report; raise UserError if the file is none."""
    try:
        report = parse_json(Path(path).read_text(encoding="utf8"))
        if isinstance(report, dict) and all(isinstance(report[name], dict) for name in ("machine", "config", "train")):
            return report
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"--baseline={path}: cannot be read ({first_line(error)}); {EXPECTED}.") from error
    raise UserError(f"--baseline={path}: is no such report; {EXPECTED}.")


def compared(report: dict[str, Any], old: dict[str, Any]) -> list[str]:
    """Return lines with the ratios of a report to an earlier one, and what differs besides."""
    ratios = ["now / baseline:"]
    for stage in ("train", "decode"):
        now, then = report.get(stage, {}), old.get(stage, {})
        for name, (unit, more) in FIGURES.items():
            if now.get(name) and then.get(name):
                ratio = now[name] / then[name]
                word = "same" if abs(ratio - 1) < 0.01 else "better" if (ratio > 1) == more else "worse"
                was = f"{_number(now[name])}, was {_number(then[name])}"
                ratios.append(f"  {stage:<7} {ratio:6.3f}  {word:<6}  {unit}: {was}")
    other = [
        f"  differs: {line}"
        for name in ("machine", "config", "data", "arms", "steps")
        for line in differences({name: report.get(name)}, {name: old.get(name)})
        if not line.startswith("machine.gpus")  # clocks and temperatures
    ]
    return ratios + (other or ["  same machine, versions and configuration"])


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def describe_machine() -> dict[str, Any]:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf8", errors="replace").splitlines() if cpuinfo.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "devices": [device.device_kind for device in jax.devices()],
        "platform": jax.default_backend(),
        "processor": next(models, platform.machine()),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version for name in PACKAGES if (version := installed_version(name))},
        "gpus": gpu_state(),
    }


def gpu_state() -> list[dict[str, str]]:
    """Return `GPU_FIELDS` of every NVIDIA GPU as `nvidia-smi` reports them now; empty without it.

    Reports hold them before and after the timed runs: a hot GPU, or one short of power, lowers its clocks.
    """
    if (command := shutil.which("nvidia-smi")) is None:
        return []
    query = [command, f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, check=False)
    lines = answer.stdout.splitlines() if answer.returncode == 0 else []
    return [dict(zip(GPU_FIELDS, (value.strip() for value in line.split(",")), strict=False)) for line in lines]
