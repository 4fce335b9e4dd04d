"""`eeg2text preflight --config=FILE.py --topology=v5e:2x4`: compiles the real programs for chips that are not there.

`--effort=full` lets the compiler optimize as it does for a run, which takes three times as long, and prints its
estimates of the time: of the training step of every bucket, and of the beam search.
"""

import json
import os
import sys

from etils import epath

from eeg2text_jax.configuration import parse_config
from eeg2text_jax.errors import UserError
from eeg2text_jax.files import write_text
from eeg2text_jax.preflight.topology import parse_topology

# libtpu is there to compile: without these it would look for a TPU of its own and for the cloud around it, and say at
# length that it found neither.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",  # whatever the topology: any that there is keeps libtpu quiet
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
}


def main(argv: list[str]) -> int:
    """Status 0: both programs fit and no collective crosses the arms; 1 otherwise."""
    arguments = parse_config(argv, "preflight", options=("topology",), optional=("json", "effort"))
    topology = parse_topology(arguments.options["topology"])
    effort = arguments.options["effort"] or "least"
    os.environ.update(ENVIRONMENT)
    from eeg2text_jax.preflight.compiling import EFFORTS
    from eeg2text_jax.preflight.render import to_json, to_text
    from eeg2text_jax.preflight.report import preflight

    if effort not in EFFORTS:
        raise UserError(f"--effort={effort}: expected one of {', '.join(EFFORTS)}.")
    report = preflight(arguments.config, topology, effort, say=lambda line: sys.stderr.write(f"{line}\n"))
    print(to_text(report))
    if arguments.options["json"]:
        write_text(epath.Path(arguments.options["json"]), json.dumps(to_json(report), indent=1) + "\n")
    return 0 if report.good else 1
