"""Samples per second of a training step that is waited for, as `beside.py train` compares it with PyTorch.

The paper's EEG encoder in front of a BART with random weights, AdamW, and sentence lengths as in ZuCo. The best of
several times of each bucket counts; an epoch weighs buckets by their frequency.
"""

import argparse
import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from bench_decode import OURS
from timing import alternate, profile, profile_lines, write_report
from workload import BUCKETS, OurTraining, Work, make_work, real_positions, stage_parser

from eeg2text_jax.base.devices.mesh import chip_of_device
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.bench import describe_machine, gpu_state
from eeg2text_jax.data.batches import Batch, Bucket
from eeg2text_jax.models.functional import training_flops

Steps = dict[str, Callable[[Batch], Any]]  # name -> one training step
# From the work and our training: steps of other libraries, and lines for the report.
Others = Callable[[Work, OurTraining], tuple[Steps, dict[str, Any]]]


def bench(args: argparse.Namespace, others: Others | None = None) -> dict[str, Any]:
    """Time our training, and `others` in turn with it; print the report, write it to `args.json`, and return it."""
    work = make_work(args.shape, args.batch, args.buckets, args.dtype, remat=args.remat)
    report: dict[str, Any] = {"device": jax.devices()[0].device_kind, "shape": args.shape, "batch": args.batch}
    report |= {"dtype": args.dtype, "remat": args.remat, "machine": describe_machine()}
    ours = OurTraining(work.program())
    steps, lines = others(work, ours) if others else ({}, {})
    report |= lines | measure(work, ours, {OURS: ours.step} | steps, args.repeats, args.trace)
    report["gpus_after"] = gpu_state()
    show(report)
    write_report(report, args.json)
    return report


def parser() -> argparse.ArgumentParser:
    parser = stage_parser("train", repeats=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--buckets", type=_buckets, default=BUCKETS, help="words:tokens,... 16:24,28:40,56:56")
    parser.add_argument("--remat", action="store_true", help="recompute layers in the backward pass (model.remat)")
    parser.add_argument("--trace", default="", help="folder for a profile of one step of every bucket; also printed")
    return parser


def _buckets(text: str) -> tuple[Bucket, ...]:
    if not re.fullmatch(r"[1-9]\d*:[1-9]\d*(,[1-9]\d*:[1-9]\d*)*", text):
        raise UserError(f"--buckets={text}: expected words:tokens,words:tokens as in 16:24,28:40,56:56.")
    return tuple(sorted((int(words), int(tokens)) for words, tokens in re.findall(r"(\d+):(\d+)", text)))


def measure(work: Work, ours: OurTraining, contestants: Steps, repeats: int, trace: str) -> dict[str, Any]:
    """Time the steps of all contestants; return rows by bucket and epoch, with our profiles in the folder `trace`."""
    compiled = {bucket: ours.compile(work.examples[bucket]) for bucket in work.buckets}
    times = alternate(contestants, work.examples, repeats, warm_each=True)
    profiles = {}
    for bucket, batch in work.examples.items() if trace else ():
        folder = Path(trace) / f"{bucket[0]}_words_{bucket[1]}_tokens"
        profiles[bucket] = profile(functools.partial(ours.step, batch), folder, ours.text(batch))
    device = jax.devices()[0]
    rows = []
    for name in contestants:
        for bucket in work.buckets:
            row = bucket_row(work, name, bucket, times[name, bucket], device.device_kind)
            if name == OURS:
                row |= compiled[bucket] | profiles.get(bucket, {})
            rows.append(row)
    epoch = {name: epoch_row(work, {b: min(times[name, b]) for b in work.buckets}) for name in contestants}
    padded = max(work.buckets)
    for name in (name for name in contestants if name != OURS):
        epoch[f"{name}, padded to {padded[0]}"] = epoch_row(work, {b: min(times[name, padded]) for b in work.buckets})
    peak = (device.memory_stats() or {}).get("peak_bytes_in_use")  # None: the device does not report it
    return {"buckets": rows, "epoch": epoch, "peak_memory_bytes": peak}


def bucket_row(work: Work, name: str, bucket: Bucket, seconds: Sequence[float], device_kind: str) -> dict[str, Any]:
    """Return the figures of one contestant on one bucket; the rates are those of the fastest of its steps."""
    best, real, chip = min(seconds), real_positions(work, bucket), chip_of_device(device_kind)
    flops = training_flops(work.model, work.size, *bucket)
    return {
        "name": name,
        "bucket": bucket,
        "batches_of_an_epoch": work.batches[bucket],
        "seconds": list(seconds),
        **{f"p{q}_seconds": float(np.percentile(seconds, q)) for q in (50, 90, 100)},
        "samples_per_second": work.size / best,
        "words_per_second": real["words"] / best,
        "tokens_per_second": real["tokens"] / best,
        "word_padding": 1 - real["words"] / real["word_positions"],
        "token_padding": 1 - real["tokens"] / real["token_positions"],
        "tflop": flops / 1e12,
        "tflop_per_second": flops / best / 1e12,
        "mfu": flops / best / chip.flops if chip else None,
    }


def epoch_row(work: Work, seconds: dict[Bucket, float]) -> dict[str, float]:
    """Return the rates of a whole epoch, from the seconds of a step by bucket."""
    total = sum(work.batches[bucket] * seconds[bucket] for bucket in work.buckets)
    batches = sum(work.batches.values())
    real = {bucket: real_positions(work, bucket) for bucket in work.buckets}
    words, tokens = (sum(work.batches[b] * real[b][kind] for b in work.buckets) for kind in ("words", "tokens"))
    return {
        "seconds_per_batch": total / batches,
        "samples_per_second": work.size * batches / total,
        "words_per_second": words / total,
        "tokens_per_second": tokens / total,
    }


def show(report: dict[str, Any]) -> None:
    print(f"{report['device']}, {report['shape']} shape, batch {report['batch']}")
    for row in report["buckets"]:
        print(_bucket_line(row))
        if "profile" in row:
            print(*profile_lines("       profile of a step", row), sep="\n")
    ours = next(iter(report["epoch"].values()))
    for name, row in report["epoch"].items():
        ratio = ours["samples_per_second"] / row["samples_per_second"]
        note = "" if row is ours else f"   eeg2text_jax is {ratio:.2f} x"
        print(
            f"epoch  {name:<21} {row['samples_per_second']:8.2f} samples/s  {row['words_per_second']:8.0f} words/s"
            f"  {row['tokens_per_second']:8.0f} tokens/s{note}"
        )
    if report["peak_memory_bytes"] is not None:
        print(f"peak memory of the device {report['peak_memory_bytes'] / 2**30:.2f} GiB")


def _bucket_line(row: dict[str, Any]) -> str:
    words, tokens = row["bucket"]
    line = (
        f"{words:>2}:{tokens:<2} x{row['batches_of_an_epoch']:<3} {row['name']:<13} {row['samples_per_second']:8.2f}"
        f" samples/s  step p50 {row['p50_seconds']:.3f} p90 {row['p90_seconds']:.3f} s"
        f"  {row['tflop_per_second']:.3f} TFLOP/s"
    )
    if "compile_seconds" not in row:
        return line
    mfu = "unknown (no peak of this device in the table)" if row["mfu"] is None else f"{100 * row['mfu']:.1f} %"
    return (
        f"{line}  MFU {mfu}\n       padding {100 * row['word_padding']:.0f} % of words,"
        f" {100 * row['token_padding']:.0f} % of tokens; compiled in {row['compile_seconds']:.0f} s,"
        f" {row['memory_bytes'] / 2**30:.2f} GiB"
    )
