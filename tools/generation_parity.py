"""Decodes 600 random sentences with PyTorch's generate and with ours and compares every token.

60 programs (small random model, random settings, every backbone in turn) with ten padded sentences each, about ten
minutes on two cores:

    python tools/generation_parity.py [--programs=60] [--first=0] [--decoder-only] [--sampled] [--as-a-tpu]

`--decoder-only`: Llama, Mistral, Qwen and Gemma after prompts of several lengths, padded on the left.
`--sampled`: tokens are drawn; PyTorch is given the random numbers that ours draws with.
`--as-a-tpu`: what the code does on TPUs alone is done here: the search asks ahead, looks back by products, and its
cache grows in groups of 16 entries and has heads in groups of 16 columns (128 on a TPU).
"""

import argparse
import sys
import time
from pathlib import Path

import jax

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "parity")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=60)
    parser.add_argument("--first", type=int, default=0, help="seed of the first program")
    parser.add_argument("--decoder-only", action="store_true", help="models without an encoder")
    parser.add_argument("--sampled", action="store_true", help="draw tokens, with the same random numbers")
    parser.add_argument("--as-a-tpu", action="store_true", help="by what the code does on TPUs alone")
    args = parser.parse_args()
    if args.as_a_tpu:
        from eeg2text_jax.models import _heads as heads
        from eeg2text_jax.models import attention

        jax.lax.platform_dependent = lambda *arrays, tpu=None, default=None, **_: (tpu or default)(*arrays)
        jax.default_backend = lambda: "tpu"
        attention.LANES = heads.LANES = 16
    if args.decoder_only:
        from causal_programs import compare_program
    else:
        from generation_cases import compare_program

    verdicts, start = [], time.monotonic()
    for seed in range(args.first, args.first + args.programs):
        verdicts += compare_program(seed, args.sampled)
        print(f"program {seed}: {sum(v.same for v in verdicts[-10:])} of 10 identical", flush=True)
        for verdict in verdicts[-10:]:
            if not verdict.same:
                print(("tie: " if verdict.tie else "DIFFERS: ") + verdict.detail, flush=True)
    same, ties = sum(v.same for v in verdicts), sum(v.tie for v in verdicts)
    wrong = len(verdicts) - same - ties
    print(
        f"{len(verdicts)} sentences in {args.programs} programs: {same} identical, {ties} ties "
        f"({ties / len(verdicts):.2%}), {wrong} different; {time.monotonic() - start:.0f} s"
    )
    return 1 if wrong or ties >= 0.01 * len(verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
