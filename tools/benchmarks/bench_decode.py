"""Sentences per second of a search of forced length, as `beside.py decode` compares it with other libraries.

The workload is the paper's EEG encoder in front of a BART with random weights, 5 beams, repetition penalty 5, no
repeated 2-grams, and every sentence forced to the full length. The best of several times counts.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from timing import alternate, write_report
from transformers import BartConfig
from workload import SHAPES, stage_parser

from eeg2text_jax.base.devices.mesh import default_platform
from eeg2text_jax.commands.bench import describe_machine, gpu_state
from eeg2text_jax.decoding.generate import compiled_search
from eeg2text_jax.decoding.settings import GenerationSpec
from eeg2text_jax.models.backbones import bart
from eeg2text_jax.models.functional import Seq2SeqModel

OURS, OURS_INT8 = "eeg2text_jax", "eeg2text_jax-int8"
Decoder = Callable[[int], np.ndarray | None]  # batch size -> tokens [B, T]; None: not comparable


class Work(NamedTuple):
    config: BartConfig  # the backbone's configuration, for other libraries
    model: Seq2SeqModel
    params: Any
    inputs: dict[str, jax.Array]  # features [B, W, F] and mask [B, W] of the largest batch
    spec: GenerationSpec


# From the work and our programs by batch size: decoders of other libraries by name, and lines for the report.
Others = Callable[[Work, "dict[int, Program]"], tuple[dict[str, Decoder], dict[str, Any]]]


def measure(args: argparse.Namespace, others: Others | None = None) -> dict[str, Any]:
    """Time our decoders, and `others` in turn with them; print the report, write it to `args.json`, and return it."""
    work = make_work(args.shape, max(args.batch), args.words, args.steps, args.dtype)
    machine = describe_machine()
    programs = {size: compile_ours(work, size) for size in args.batch}
    rounded = work._replace(spec=work.spec.replace(weights_dtype="int8"))
    in_int8 = {size: compile_ours(rounded, size) for size in args.batch} if args.int8 else {}
    for size, program in programs.items():
        print(f"batch {size}: compiled in {program.seconds:.1f} s, {program.mib:.0f} MiB above weights and inputs")
    tokens = {size: program.decode() for size, program in programs.items()}
    same_in_int8 = {size: count_same(program.decode(), tokens[size]) for size, program in in_int8.items()}
    for size, count in same_in_int8.items():
        print(f"batch {size}: {count} of {size} sentences have the same tokens in int8")
    peers, lines = others(work, programs) if others else ({}, {})
    decoders: dict[str, Decoder] = {OURS: lambda size: programs[size].decode(), **peers}
    if in_int8:
        decoders[OURS_INT8] = lambda size: in_int8[size].decode()
    times = alternate(decoders, {size: size for size in args.batch}, args.repeats)
    report = {
        "device": str(jax.devices()[0]),
        "machine": machine,
        "gpus_after": gpu_state(),
        "shape": args.shape,
        "dtype": args.dtype,
        "steps": args.steps,
        "sentences_with_the_same_tokens_in_int8": same_in_int8,
        **lines,
        "rows": [
            {"decoder": name, "batch": size, "sentences_per_second": size / min(seconds), "seconds": seconds}
            for (name, size), seconds in times.items()
        ],
        "compile_seconds": {size: program.seconds for size, program in programs.items()},
        "mib_above_weights": {size: program.mib for size, program in programs.items()},
    }
    show(report)
    write_report(report, args.json)
    return report


def parser() -> argparse.ArgumentParser:
    options = stage_parser("decode", repeats=3)
    options.add_argument("--batch", type=lambda s: [int(n) for n in s.split(",")], default=[1, 8, 32], help="1,8,32")
    options.add_argument("--words", type=int, default=24, help="EEG positions of a batch")
    options.add_argument("--steps", type=int, default=56, help="tokens of every sentence, the start token among them")
    options.add_argument("--int8", action="store_true", help="also decode with decode.weights_dtype=int8")
    return options


def make_work(shape: str, batch: int, words: int, steps: int, dtype: str = "float32") -> Work:
    """Make random weights and inputs of `batch` sentences; their lengths lie between `words / 2` and `words`."""
    sizes = SHAPES[shape]
    config = sizes.bart_config(forced_eos_token_id=None)
    model = Seq2SeqModel(bart.spec_from_config(config), sizes.eeg_spec(), dtype=dtype)
    rng = np.random.default_rng(0)
    lengths = rng.integers((words + 1) // 2, words + 1, size=batch)
    inputs = {
        "features": jnp.asarray(rng.normal(size=(batch, words, sizes.features)), jnp.float32),
        "mask": jnp.arange(words)[None, :] < jnp.asarray(lengths)[:, None],
    }
    settings = {"num_beams": 5, "repetition_penalty": 5.0, "no_repeat_ngram_size": 2}
    spec = GenerationSpec.from_fields({**settings, "max_length": steps, "min_length": steps}, model)
    return Work(config, model, jax.jit(model.init)(jax.random.key(0)), inputs, spec)


class Program(NamedTuple):
    """The compiled program of one batch size: EEG encoder, BART encoder and beam search."""

    decode: Callable[[], np.ndarray]  # returns tokens [B, T]
    seconds: float  # time to trace and compile
    mib: float  # peak memory in MiB, besides weights and inputs


def compile_ours(work: Work, size: int) -> Program:
    """Compile our decoder for the first `size` sentences of the inputs; weights in int8 are rounded before."""
    params = work.model.prepared(work.params, work.spec.weights_dtype)
    inputs, start = {name: value[:size] for name, value in work.inputs.items()}, time.perf_counter()
    compiled = compiled_search(default_platform()).lower(work.model, params, inputs, work.spec, None).compile()
    seconds = time.perf_counter() - start
    mib = compiled.memory_analysis().temp_size_in_bytes / 2**20
    return Program(lambda: np.asarray(compiled(params, inputs, None).sequences), seconds, mib)


def count_same(ours: np.ndarray, tokens: np.ndarray) -> int:
    """Return how many rows of `ours [B, T]` begin with the row of `tokens [B, T]`, which may be shorter."""
    return int((ours[:, : tokens.shape[1]] == tokens).all(axis=1).sum())


def show(report: dict[str, Any]) -> None:
    paces = {(row["decoder"], row["batch"]): row["sentences_per_second"] for row in report["rows"]}
    for row in sorted(report["rows"], key=lambda row: row["batch"]):
        name, size, pace = row["decoder"], row["batch"], row["sentences_per_second"]
        step = 1e3 * min(row["seconds"]) / (report["steps"] - 1)
        ours = [variant for variant in (OURS, OURS_INT8) if name not in (OURS, OURS_INT8) and (variant, size) in paces]
        ratios = "".join(f"   {variant} is {paces[variant, size] / pace:.2f} x" for variant in ours)
        print(f"batch {size:>3}  {name:<17} {pace:6.2f} sentences/s  {step:7.1f} ms/step{ratios}")
