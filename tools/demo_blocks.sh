#!/usr/bin/env bash
# Sets up .venv on first use, then shows the trap of block designs with a trained network, and how the controls of time
# catch it: made-up recordings with slow drift alone or with planted words, whose kinds of sentences are shown in blocks
# or in random order. Two to five minutes on two CPU cores. The results go to the folder given, or to runs/demo_blocks.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh
out=${1:-runs/demo_blocks}
mkdir -p "$out"
begun=$SECONDS
for design in drift words drift,order=random words,order=random; do
  name=${design/,order=/_}
  printf '\n=== %s ===\n' "$design"
  # The first row is the usual control, which drift in blocks beats; the others know the time.
  .venv/bin/eeg2text run --config=configs/demo_blocks.py:$design --workdir="$out/$name" > "$out/$name.txt" ||
    [ $? = 10 ] || { cat "$out/$name.txt"; exit 1; } # 10: not beyond its time
  .venv/bin/python -c 'import json, sys
found = json.load(open(sys.argv[1]))
for c in found["comparisons"]:
    print("against {control}: {effect:+.2f},".format(**c["contrast"]), c["verdict"])
print("VERDICT:", found["headline"])' "$out/$name/audit.json"
done
printf '\nfour designs took %d s; each prints to %s, its report is %s\n' $((SECONDS - begun)) "$out/NAME.txt" "$out/NAME/report.html"
