"""`eeg2text export`: the best parameters of one arm of a finished run -> a folder that transformers loads."""

import argparse
from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Exports an arm.

    Raises:
      UserError: the workdir holds no finished run, there is no such arm, or the folder cannot be written.
    """
    parser = argparse.ArgumentParser(
        prog="eeg2text export",
        description="Writes config.json, model.safetensors and the tokenizer for transformers, "
        "eeg_encoder.safetensors beside them, and a model card.",
    )
    parser.add_argument("--workdir", required=True, help="folder of the run")
    parser.add_argument("--out", required=True, help="folder to write; it must not exist or be empty")
    parser.add_argument("--arm", default="", help="e.g. eeg/0 (condition/seed); default: the first one trained on EEG")
    flags = parser.parse_args(argv)
    from eeg2text_jax.export_run import export_run
    from eeg2text_jax.parallel.distributed import check_devices

    check_devices()
    print(f"wrote {flags.out}: arm {export_run(flags.workdir, flags.out, flags.arm)}")
    return 0
