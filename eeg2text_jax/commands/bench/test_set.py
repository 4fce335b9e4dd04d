"""`eeg2text bench --stage=test_set`: decode a whole test set whose sentences end at different lengths, as in ZuCo.

The model is that of `--stage=decode`. Random weights never end a sentence, so the end token is forced at a position
drawn from the lengths of real sentences with as many words. As in `run`, slices (batches of sentences) are sorted by
words, and each bucket is compiled once. The report has sentences per second with these lengths and with 56 forced
steps, the steps spent on waiting for the longest sentence of a slice, and peak memory besides the weights.
`--related=no` makes text lengths independent of word counts, as they may be for a model whose input is noise.
"""

import argparse
import resource
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from eeg2text_jax.base.devices.mesh import default_platform
from eeg2text_jax.commands.bench.decode import Work, make_work
from eeg2text_jax.commands.bench.timing import write_report
from eeg2text_jax.commands.bench.workload import BUCKETS, LONGEST, Lengths, sentence_lengths, stage_parser
from eeg2text_jax.decoding.beam_search import Growth, Hypotheses, beam_search
from eeg2text_jax.decoding.generate import Slice, decode_dataset, plan_slices
from eeg2text_jax.models.attention import reorder_beams, resize

FORCED_LOGIT = 1e4  # far above all other logits


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
    some = np.random.default_rng(2).permutation(args.count)[: args.forced or args.count]
    forced = Lengths(lengths.words[some], np.full(len(some), LONGEST + 1))
    report["forced"] = decode_all(work, programs[0], forced, args.batch)
    for compactions in args.compactions:
        report[f"free, {compactions} compactions"] = decode_all(work, programs[compactions], lengths, args.batch)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # bytes of this process
    report["mib_above_weights"] = (peak - weights) / 2**20
    show(report)
    write_report(report, args.json)
    return 0


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = stage_parser("test_set")
    parser.add_argument("--count", type=int, default=1400, help="number of sentences")
    parser.add_argument("--forced", type=int, default=128, help="sentences decoded with all steps forced; 0: all")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--compactions", type=lambda s: [int(n) for n in s.split(",")], default=[0, 2], help="0,2")
    parser.add_argument("--related", choices=("yes", "no"), default="yes", help="do text lengths follow word counts?")
    parser.add_argument(
        "--sentences", default="", help="text file, one sentence per line; else a fit to ZuCo's lengths"
    )
    return parser.parse_args(argv)


def decode_all(work: Work, program: jax.stages.Wrapped, lengths: Lengths, size: int) -> dict[str, float]:
    """Compile a jitted `search_to_lengths` for every bucket, decode the test set once, and return speed and steps.

    Sentences have the given `lengths`; `size` is the batch size.
    """
    slices = plan_slices(lengths.words, [words for words, _ in BUCKETS], size)
    start = time.perf_counter()
    one_each = {part.words: part for part in slices}
    compiled = {words: program.lower(*feed(work, lengths, part)).compile() for words, part in one_each.items()}
    compiling = time.perf_counter() - start

    def decode(part: Slice) -> Hypotheses:
        return compiled[part.words](*feed(work, lengths, part))

    start = time.perf_counter()
    hypotheses = decode_dataset(slices, decode, f"{len(lengths.words)} sentences")
    seconds = time.perf_counter() - start
    ends = np.minimum(lengths.tokens + 1, LONGEST)  # includes the start token
    if not np.array_equal(hypotheses.lengths[:, 0], ends):
        raise AssertionError("a sentence did not end at its forced end token")
    return {
        "sentences": len(lengths.words),
        "sentences_per_second": len(lengths.words) / seconds,
        "compile_seconds": compiling,
        "steps_needed": float((ends - 1).mean()),
        "steps_taken": float(hypotheses.steps.mean()),
    }


def feed(work: Work, lengths: Lengths, part: Slice) -> tuple[Any, dict[str, jax.Array], jax.Array]:
    """Return the inputs of `search_to_lengths` for a slice: parameters, random features, and end positions `[B]`."""
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
    """Run a beam search that forces sentence `b` to end at position `ends[b]`, int32 `[B]`."""
    model, spec = work.model, work.spec
    hidden, mask = model.encode(params, inputs)
    cache = model.init_cache(params, hidden, mask, spec.num_beams, spec.max_length), ends
    step = model.decode_step(params)

    def step_to_end(tokens: jax.Array, index: jax.Array, cache: Any) -> tuple[jax.Array, Any]:
        cache, ends = cache
        logits, cache = step(tokens, index, cache)
        due = jnp.repeat(index + 1 >= ends, spec.num_beams)
        return logits.at[:, model.eos_token].set(jnp.where(due, FORCED_LOGIT, -FORCED_LOGIT)), (cache, ends)

    def reorder(cache: Any, parents: jax.Array) -> Any:
        return reorder_beams(cache[0], parents), cache[1]

    def resize_first(cache: Any, length: int) -> Any:
        return resize(cache[0], length, grouped=platform == "tpu"), cache[1]

    platform = default_platform()
    growth = Growth(model.cache_lengths(spec.num_beams, spec.max_length, platform), resize_first)
    return beam_search(step_to_end, reorder, cache, len(ends), spec, compactions=compactions, growth=growth)


def show(report: dict[str, Any]) -> None:
    """Print the report as text."""
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
