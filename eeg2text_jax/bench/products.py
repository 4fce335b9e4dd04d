"""`eeg2text bench --stage=products`: plain matrix products of XLA and PyTorch on this device, in one table.

The table shows whether the ratio of the two libraries in training or decoding comes from the processor: on two AMD
processors PyTorch's products reached half of XLA's rate. The products are those of BART's layers and output head, with
the rows of a decoding step and of a training step. On a GPU, many products are queued before one wait, because a
product takes less time than its launch from Python; for the smallest products the result may still be the launch time.
"""

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from eeg2text_jax.bench.peers import Place, import_peer, peer_place
from eeg2text_jax.bench.timing import best_seconds, describe_machine, gpu_state, write_report
from eeg2text_jax.bench.workload import SHAPES, stage_parser

QUEUED = 100  # products that a GPU is given before they are waited for


class Product(NamedTuple):
    """A matrix product `[rows, inner] x [inner, columns]`."""

    what: str  # the layer that computes it
    rows: int
    inner: int
    columns: int

    @property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Shapes of both factors."""
        return (self.rows, self.inner), (self.inner, self.columns)


def main(argv: list[str]) -> int:
    args = _arguments(argv)
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


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = stage_parser("products", repeats=5)
    parser.add_argument("--rows", type=lambda s: [int(n) for n in s.split(",")], default=[160, 1792], help="160,1792")
    parser.add_argument("--peer", default="torch", choices=("", "torch"))
    return parser.parse_args(argv)


def layer_products(shape: str, rows: list[int]) -> list[Product]:
    """Return the products of one layer and of the output head of a model in `SHAPES`, for each number of rows."""
    sizes = SHAPES[shape]
    columns = {"attention projection": sizes.width, "feed-forward": sizes.ffn, "output head": sizes.vocabulary}
    return [Product(what, n, sizes.width, width) for n in rows for what, width in columns.items()]


def xla_seconds(product: Product, dtype: str, repeats: int) -> float:
    """Return the seconds of the fastest of `repeats` products by XLA, on JAX's default device."""
    x, weights = (jnp.ones(shape, dtype) for shape in product.shapes)
    multiply = jax.jit(lambda x, weights: x @ weights)
    calls = 1 if jax.default_backend() == "cpu" else QUEUED
    return best_seconds(lambda: [multiply(x, weights) for _ in range(calls)][-1], repeats) / calls


def torch_seconds(product: Product, place: Place, repeats: int) -> float:
    """Return the seconds of the fastest of `repeats` products by PyTorch."""
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
