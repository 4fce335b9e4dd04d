"""`eeg2text preflight --config=FILE.py --topology=v5e:2x4`: compiles the real programs for a TPU that is not there."""

import os

from eeg2text_jax.configuration import parse_config


def main(argv: list[str]) -> int:
    arguments = parse_config(argv, "preflight", options=("topology",))
    os.environ["JAX_PLATFORMS"] = "cpu"  # libtpu is there to compile, not to be run on
    os.environ["TPU_SKIP_MDS_QUERY"] = "1"
    from eeg2text_jax.preflight.chips import open_topology
    from eeg2text_jax.preflight.programs import Preflight
    from eeg2text_jax.preflight.report import report

    chip, devices = open_topology(arguments.options["topology"])
    print(report(Preflight.from_config(arguments.config, devices), chip))
    return 0
