"""`eeg2text bench --stage=decode|test_set|train ...`: throughput, compile time and memory of one stage."""

import argparse
import importlib

STAGES = ("decode", "test_set", "train")  # each is a module of `eeg2text_jax.bench` with `main(argv)`


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="eeg2text bench", description=__doc__, add_help=False)
    parser.add_argument("--stage", choices=STAGES, required=True)
    if {"-h", "--help"} & set(argv) and not any(argument.startswith("--stage") for argument in argv):
        parser.print_help()
        return 0
    args, rest = parser.parse_known_args(argv)
    stage = importlib.import_module(f"eeg2text_jax.bench.{args.stage}")
    if not {"-h", "--help"} & set(rest):
        from eeg2text_jax.parallel.distributed import check_devices

        check_devices()
    return stage.main(rest)
