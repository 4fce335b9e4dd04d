#!/usr/bin/env bash
# Sets up .venv on first use, then decodes planted fMRI: stories are written as a BIDS tree, read, reconstructed and
# decoded under split f (unseen subjects, unseen stories), once with the words in the volumes and once without. The
# results go to the folder given, or to runs/demo_fmri.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh
.venv/bin/python -c 'import nibabel' 2>/dev/null || .venv/bin/pip install -q -c tools/constraints.txt nibabel
out=${1:-runs/demo_fmri}
begun=$SECONDS
for data in planted null; do
  printf '\n=== %s ===\n' "$data"
  .venv/bin/eeg2text run --config=configs/demo_fmri.py:$data --workdir="$out/$data"
done
printf '\nplanted and null took %d s; reports: %s\n' $((SECONDS - begun)) "$out/planted/report.html $out/null/report.html"
