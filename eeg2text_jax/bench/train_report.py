"""Figures of the benchmark of training: per bucket, per epoch, and as text."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from eeg2text_jax.bench.profiles import profile_lines
from eeg2text_jax.bench.train_work import Work, real_positions
from eeg2text_jax.data.epochs import Bucket
from eeg2text_jax.models.flops import training_flops
from eeg2text_jax.parallel.chips import chip_of_device


def bucket_row(work: Work, name: str, bucket: Bucket, seconds: Sequence[float], device_kind: str) -> dict[str, Any]:
    """One contestant on one bucket; rates are those of its best step."""
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
    """Rates over an epoch, from the seconds of a step of each bucket."""
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
    """The figures as text."""
    print(f"{report['device']}, {report['shape']} shape, batch {report['batch']}")
    if "first_loss" in report:
        losses = ", ".join(f"{name} {value:.6g}" for name, value in report["first_loss"].items())
        print(f"first loss without dropout: {losses}")
    for row in report.get("buckets", ()):
        print(_bucket_line(row))
        if "profile" in row:
            print(*profile_lines("       profile of a step", row), sep="\n")
    if "epoch" in report:
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
    for row in report.get("arms", ()):
        memory = f"compiled in {row['compile_seconds']:.0f} s, {row['memory_bytes'] / 2**30:.1f} GiB"
        pace = f"{row['seconds']:7.2f} s a step of {_bucket(row['bucket'])}, {row['ratio']:.2f} x two runs"
        print(f"two arms, {row['how']:<19} {pace}; {memory}")
    if "input" in report:
        row = report["input"]
        arrive, used = row["batches_per_second"], row["batches_per_second_of_training"]
        print(f"input alone {arrive:.1f} batches/s, training uses {used:.3f}: {arrive / used:.0f} times as fast")


def _bucket_line(row: dict[str, Any]) -> str:
    line = (
        f"{_bucket(row['bucket'])} x{row['batches_of_an_epoch']:<3} {row['name']:<13} {row['samples_per_second']:8.2f}"
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


def _bucket(bucket: Bucket) -> str:
    return f"{bucket[0]:>2}:{bucket[1]:<2}"
