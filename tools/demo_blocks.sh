#!/usr/bin/env bash
# Shows the trap of block designs and how it is caught: made-up recordings with slow drift or planted words, a decoder by
# nearest neighbors, and the audits of one seed with the usual control and with the controls of time. No model is trained.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh
.venv/bin/python tools/time_trap.py --seeds "${1:-1}" --show
