"""Decoding and training beside other libraries (peers) in the same process, on JAX's device and in the same precision.

  python tools/benchmarks/beside.py decode --peer=transformers,ctranslate2 [options of bench_decode.py]
  python tools/benchmarks/beside.py train --peer=torch [options of bench_train.py]
  python tools/benchmarks/beside.py products [--peer=] [--rows=160,1792]

`decode`: `transformers` and `transformers-static` (KV cache of fixed size) decode the same encoder states with the same
weights, and tokens are compared; `ctranslate2`, `-float16` and `-int8` read text of the same length. `train`: PyTorch
runs eagerly (`torch`) or compiled (`torch-compiled`) on the same batches, and on batches padded to 56 words and tokens
as in the authors' code; losses are compared. `products`: the matrix products of BART show whether a ratio comes from
the processor: on two AMD processors PyTorch's reached half of XLA's rate. A failing peer is reported. The exit status
is 1 if tokens or losses differ.
"""

import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import bench_decode as decode
import bench_train as train
import jax
import jax.numpy as jnp
import numpy as np
from bench_decode import OURS, Decoder, Program, Work, compile_ours, count_same
from peers import (
    Place,
    TorchTraining,
    ctranslate2_decoder,
    import_peer,
    peer_names,
    peer_place,
    set_torch_precision,
    torch_bart,
    transformers_decoder,
    warm_up,
)
from timing import best_seconds, write_report
from workload import OPTIMIZER, SHAPES, OurTraining, stage_parser
from workload import Work as TrainingWork

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.bench import describe_machine, gpu_state

DECODERS = ("transformers", "transformers-static", "ctranslate2", "ctranslate2-float16", "ctranslate2-int8")
TORCH, COMPILED = "torch", "torch-compiled"
QUEUED = 100  # products that a GPU gets before one wait: one takes less time than its launch from Python


class Product(NamedTuple):
    what: str  # the layer that computes it
    rows: int
    inner: int
    columns: int

    @property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (self.rows, self.inner), (self.inner, self.columns)


def main(argv: list[str]) -> int:
    stages = {"decode": beside_decoding, "train": beside_training, "products": products}
    if not argv or argv[0] not in stages:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        return stages[argv[0]](argv[1:])
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def beside_decoding(argv: list[str]) -> int:
    options = decode.parser()
    names = functools.partial(peer_names, names=DECODERS)
    options.add_argument("--peer", type=names, default=[], help=",".join(DECODERS))
    options.add_argument("--threads", type=int, default=2, help="CPU threads of CTranslate2")
    args = options.parse_args(argv)

    def others(work: Work, programs: dict[int, Program]) -> tuple[dict[str, Decoder], dict[str, Any]]:
        peers = make_decoders(work, args.peer, args.threads, peer_place(args.dtype))
        failed = warm_up(peers, args.batch)
        same = count_agreeing(work, args.batch, programs) if "transformers" in args.peer else {}
        for size, count in same.items():
            print(f"batch {size}: {count} of {size} sentences have transformers' tokens in float32")
        return peers, {"sentences_with_transformers_tokens": same, "failed_peers": failed}

    report = decode.measure(args, others)
    return int(any(count != size for size, count in report["sentences_with_transformers_tokens"].items()))


def make_decoders(work: Work, names: list[str], threads: int, place: Place) -> dict[str, Decoder]:
    """Make the decoders of the named peers with our weights; CTranslate2 uses `threads` CPU threads."""
    if not names:
        return {}
    theirs = torch_bart(work.config, work.model, jax.device_get(work.params))
    hidden, mask = encoded(work)
    types = {"ctranslate2": "float32", "ctranslate2-float16": "float16"}
    types["ctranslate2-int8"] = "int8" if place.device == "cpu" else "int8_float16"
    made = {}
    for name in names:
        if name in types:
            import_peer("ctranslate2")
            make = functools.partial(ctranslate2_decoder, theirs, mask, work.spec, threads, types[name], place)
        else:
            static = name == "transformers-static"
            make = functools.partial(transformers_decoder, theirs, hidden, mask, work.spec, place, static=static)
        made[name] = _made_at_first_call(make)
    return made


def _made_at_first_call(make: Callable[[], Decoder]) -> Decoder:
    """Return a decoder that calls `make` at the decoder's first call, so that `warm_up` sees the errors of `make`."""
    made = functools.cache(make)
    return lambda size: made()(size)


def encoded(work: Work) -> tuple[np.ndarray, np.ndarray]:
    """Return our encoder's output, float32 `[B, S, D]`, and its mask `[B, S]`."""
    hidden, mask = jax.jit(work.model.encode)(work.params, work.inputs)
    return np.asarray(hidden.astype(jnp.float32)), np.asarray(mask)


def count_agreeing(work: Work, batches: list[int], programs: dict[int, Program]) -> dict[int, int]:
    """Return batch size -> sentences that we and transformers decode to the same tokens in float32 without TF32.

    Unless JAX runs on a CPU, only the first size is compared.
    """
    exact = work._replace(model=dataclasses.replace(work.model, dtype="float32"))
    on_cpu = jax.default_backend() == "cpu"
    set_torch_precision(exact=True)
    with jax.default_matmul_precision("highest"):
        model = torch_bart(work.config, work.model, jax.device_get(work.params))
        theirs = transformers_decoder(model, *encoded(exact), work.spec, peer_place("float32"))
        same = {}
        for size in batches if on_cpu else batches[:1]:
            ours = programs[size] if on_cpu and work.model.dtype == "float32" else compile_ours(exact, size)
            tokens = theirs(size)[:, : work.spec.max_length]
            same[size] = count_same(ours.decode(), tokens)
    set_torch_precision(exact=False)
    return same


def beside_training(argv: list[str]) -> int:
    options = train.parser()
    names = functools.partial(peer_names, names=(TORCH, COMPILED))
    options.add_argument("--peer", type=names, default=[], help=f"{TORCH},{COMPILED}, on JAX's device")
    args = options.parse_args(argv)

    def others(work: TrainingWork, ours: OurTraining) -> tuple[train.Steps, dict[str, Any]]:
        shared = work.config, work.model, ours.host_params(), OPTIMIZER, peer_place(args.dtype)
        peers = {name: TorchTraining(*shared, compiled=name == COMPILED) for name in args.peer}
        losses = first_losses(work, ours, peers[args.peer[0]])
        steps: train.Steps = {name: peer.step for name, peer in peers.items()}
        del peers  # so that a failing peer's memory is freed
        return steps, {"first_loss": losses, "failed_peers": warm_up(steps, work.examples.values())}

    report = train.bench(args, others if args.peer else None)
    if "first_loss" not in report:
        return 0
    print(
        "first loss without dropout: " + ", ".join(f"{name} {loss:.6g}" for name, loss in report["first_loss"].items())
    )
    return int(report["first_loss"]["relative_difference"] >= 1e-4)


def first_losses(work: TrainingWork, ours: OurTraining, theirs: TorchTraining) -> dict[str, float]:
    """Return the losses of both libraries on one batch before training, in float32, without dropout."""
    batch = work.examples[work.buckets[0]]
    exact = dataclasses.replace(work, model=dataclasses.replace(work.model, dtype="float32"))
    loss, other = ours.first_loss(batch, exact.program()), theirs.first_loss(batch)
    return {OURS: loss, TORCH: other, "relative_difference": abs(loss - other) / abs(other)}


def products(argv: list[str]) -> int:
    options = stage_parser("products", repeats=5)
    options.add_argument("--rows", type=lambda s: [int(n) for n in s.split(",")], default=[160, 1792], help="160,1792")
    options.add_argument("--peer", default="torch", choices=("", "torch"))
    args = options.parse_args(argv)
    report: dict[str, Any] = {"machine": describe_machine(), "dtype": args.dtype, "rows": []}
    seconds: dict[str, Callable[[Product], float]] = {"XLA": lambda one: xla_seconds(one, args.dtype, args.repeats)}
    if args.peer:
        place = peer_place(args.dtype)
        seconds["PyTorch"] = lambda one: torch_seconds(one, place, args.repeats)
    for product in layer_products(args.shape, args.rows):
        flops = 2.0 * product.rows * product.inner * product.columns
        rates = {name: flops / measure(product) for name, measure in seconds.items()}
        report["rows"].append({**product._asdict(), "flop_per_s": rates})
        print(row_line(product, rates))
    report["gpus_after"] = gpu_state()
    write_report(report, args.json)
    return 0


def layer_products(shape: str, rows: list[int]) -> list[Product]:
    sizes = SHAPES[shape]
    columns = {"attention projection": sizes.width, "feed-forward": sizes.ffn, "output head": sizes.vocabulary}
    return [Product(what, n, sizes.width, width) for n in rows for what, width in columns.items()]


def xla_seconds(product: Product, dtype: str, repeats: int) -> float:
    x, weights = (jnp.ones(shape, dtype) for shape in product.shapes)
    multiply = jax.jit(lambda x, weights: x @ weights)
    calls = 1 if jax.default_backend() == "cpu" else QUEUED
    return best_seconds(lambda: [multiply(x, weights) for _ in range(calls)][-1], repeats) / calls


def torch_seconds(product: Product, place: Place, repeats: int) -> float:
    torch = import_peer("torch")
    options = {"device": place.device, "dtype": getattr(torch, place.dtype)}
    x, weights = (torch.ones(shape, **options) for shape in product.shapes)
    calls = QUEUED if place.device == "cuda" else 1

    def multiply() -> None:
        for _ in range(calls):
            torch.matmul(x, weights)
        if place.device == "cuda":
            torch.cuda.synchronize()

    with torch.no_grad():
        return best_seconds(multiply, repeats) / calls


def row_line(product: Product, rates: dict[str, float]) -> str:
    """Format a line of the table from FLOP/s by library; with PyTorch, also the ratio of XLA to PyTorch."""
    size = f"[{product.rows}, {product.inner}] x [{product.inner}, {product.columns}]"
    shown = "".join(f"  {name} {rate / 1e9:8.1f} GFLOP/s" for name, rate in rates.items())
    ratio = f"   XLA is {rates['XLA'] / rates['PyTorch']:.2f} x" if "PyTorch" in rates else ""
    return f"{product.what:<21} {size:<32}{shown}{ratio}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
