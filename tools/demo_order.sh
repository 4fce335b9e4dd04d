#!/usr/bin/env bash
# Sets up .venv on first use, then shows the trap of sentences that come in the same order on all days, and how it is
# answered: made-up recordings of two readers on four days, with a drift that is the same function of the place in all of
# them. The last day is tested with a decoder by nearest neighbors: without words, with words, and with words in another
# order on each day. The controls of time qualify the verdict, and the likeness of recordings tells whether there are
# words. Half a minute on two CPU cores.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh
.venv/bin/python tools/calibrations/order_trap.py --show
