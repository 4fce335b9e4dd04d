"""`eeg2text bench --stage=test_set`: decode a whole test set whose sentences end at different lengths, as in ZuCo.

The model is that of `--stage=decode`. Random weights never end a sentence, so the end token is forced where a real
sentence with as many words has it. Everything else is done as in `run`: slices sorted by words, one compilation per
bucket, results in the original order. Reported: sentences per second with free lengths and with 56 forced steps, the
cost of waiting for the longest sentence of a slice, and peak memory besides the weights.

`--related=no` draws lengths independent of the word counts, like a model whose input is noise.
"""

import argparse
import json
import resource
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from eeg2text_jax.bench.decode import Work, make_work
from eeg2text_jax.bench.workload import BUCKETS, LONGEST, SHAPES, Lengths, sentence_lengths
from eeg2text_jax.decoding.sharded import Slice, decode_dataset, plan_slices
from eeg2text_jax.models.cache import reorder_beams
from eeg2text_jax.search.beam_search import Hypotheses, beam_search

CERTAIN = 1e4  # a logit far above all others


def main(argv: list[str]) -> int:
    args = _arguments(argv)
    lengths = sentence_lengths(args.count, args.sentences)
    if args.related == "no":
        lengths = lengths._replace(tokens=np.random.default_rng(1).permutation(lengths.tokens))
    work = make_work(args.shape, args.batch, LONGEST, LONGEST)
    work = work._replace(spec=work.spec.replace(min_length=0))
    weights = sum(leaf.nbytes for leaf in jax.tree.leaves(work.params))
    report: dict[str, Any] = {"device": str(jax.devices()[0]), "sentences": args.count, "batch": args.batch}
    programs = {n: jax.jit(partial(search_to_lengths, work, compactions=n)) for n in {0, *args.compactions}}
    forced = lengths._replace(tokens=np.full(args.count, LONGEST + 1))
    some = np.random.default_rng(2).permutation(args.count)[: args.forced or args.count]
    report["forced"] = decode_all(work, programs[0], Lengths(*(values[some] for values in forced)), args.batch)
    for compactions in args.compactions:
        report[f"free, {compactions} compactions"] = decode_all(work, programs[compactions], lengths, args.batch)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # bytes of this process
    report["mib_above_weights"] = (peak - weights) / 2**20
    show(report)
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=1), encoding="utf8")
    return 0


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="eeg2text bench --stage=test_set")
    parser.add_argument("--shape", choices=SHAPES, default="base")
    parser.add_argument("--count", type=int, default=1400, help="sentences")
    parser.add_argument("--forced", type=int, default=128, help="of them decoded with all steps forced; 0: all")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--compactions", type=lambda s: [int(n) for n in s.split(",")], default=[0, 2], help="0,2")
    parser.add_argument("--related", choices=("yes", "no"), default="yes", help="do lengths follow the words?")
    parser.add_argument("--sentences", default="", help="text file, one a line; default: a fit to ZuCo's lengths")
    parser.add_argument("--json", default="", help="file for the figures")
    return parser.parse_args(argv)


def decode_all(work: Work, program: jax.stages.Wrapped, lengths: Lengths, size: int) -> dict[str, float]:
    """Decode the test set once with a jitted program, compile first, and check that sentences end where forced."""
    slices = plan_slices(lengths.words, [words for words, _ in BUCKETS], size)
    start = time.perf_counter()
    one_each = {part.words: part for part in slices}
    compiled = {words: program.lower(*feed(work, lengths, part)).compile() for words, part in one_each.items()}
    compiling = time.perf_counter() - start

    def decode(part: Slice) -> Hypotheses:
        return compiled[part.words](*feed(work, lengths, part))

    start = time.perf_counter()
    found = decode_dataset(slices, decode, f"{len(lengths.words)} sentences")
    seconds = time.perf_counter() - start
    ends = np.minimum(lengths.tokens + 1, LONGEST)  # includes the start token
    if not np.array_equal(found.lengths[:, 0], ends):
        raise AssertionError("a sentence did not end where it was told to")
    return {
        "sentences": len(lengths.words),
        "sentences_per_second": len(lengths.words) / seconds,
        "compile_seconds": compiling,
        "steps_needed": float((ends - 1).mean()),
        "steps_taken": float(found.steps.mean()),
    }


def feed(work: Work, lengths: Lengths, part: Slice) -> tuple[Any, dict[str, jax.Array], jax.Array]:
    """Return parameters, random features of a slice, and the position of every sentence's end token."""
    rng = np.random.default_rng(part.samples[0])
    shape = (len(part.samples), part.words, work.inputs["features"].shape[-1])
    inputs = {
        "features": jnp.asarray(rng.normal(size=shape), jnp.float32),
        "mask": jnp.arange(part.words)[None, :] < jnp.asarray(lengths.words[part.samples])[:, None],
    }
    return work.params, inputs, jnp.asarray(lengths.tokens[part.samples], jnp.int32)


def search_to_lengths(
    work: Work, params: Any, inputs: dict[str, jax.Array], ends: jax.Array, *, compactions: int
) -> Hypotheses:
    """Beam search in which sentence b is forced to end at token `ends[b]`, int32 `[B]`."""
    model, spec = work.model, work.spec
    hidden, mask = model.encode(params, inputs)
    cache = model.init_cache(params, hidden, mask, spec.num_beams, spec.max_length), ends
    step = model.decode_step(params)

    def ending(tokens: jax.Array, index: jax.Array, cache: Any) -> tuple[jax.Array, Any]:
        cache, ends = cache
        logits, cache = step(tokens, index, cache)
        due = jnp.repeat(index + 1 >= ends, spec.num_beams)
        return logits.at[:, model.eos_token].set(jnp.where(due, CERTAIN, -CERTAIN)), (cache, ends)

    def reorder(cache: Any, parents: jax.Array) -> Any:
        return reorder_beams(cache[0], parents), cache[1]

    return beam_search(ending, reorder, cache, len(ends), spec, compactions=compactions)


def show(report: dict[str, Any]) -> None:
    """Format the figures as text."""
    pace = report["forced"]["sentences_per_second"]
    for name, row in report.items():
        if isinstance(row, dict):
            print(
                f"{name:<16} {row['sentences']:>5} sentences  {row['sentences_per_second']:6.2f} sentences/s "
                f"({row['sentences_per_second'] / pace:.2f} x forced)  needed {row['steps_needed']:.1f} steps each, "
                f"took {row['steps_taken']:.1f} ({row['steps_taken'] / row['steps_needed']:.2f} x)  "
                f"compiled in {row['compile_seconds']:.0f} s"
            )
    print(f"peak memory above the weights: {report['mib_above_weights']:.0f} MiB")
