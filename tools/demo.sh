#!/usr/bin/env bash
# Sets up .venv on first use, then runs the whole job on two synthetic data sets: one whose "EEG" carries the words
# (planted), one whose "EEG" carries nothing (null). The results go to the folder given, or to runs/demo.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh
out=${1:-runs/demo}
begun=$SECONDS
for data in planted null; do
  printf '\n=== %s ===\n' "$data"
  .venv/bin/eeg2text run --config=configs/demo.py:$data --workdir="$out/$data"
done
printf '\nplanted and null took %d s; reports: %s\n' $((SECONDS - begun)) "$out/planted/report.html $out/null/report.html"
