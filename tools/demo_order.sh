#!/usr/bin/env bash
# Sets up .venv on first use, then shows the trap of sentences that come in the same order on all days, and how it is
# answered: made-up recordings of two readers on four days with a drift that is the same function of the place in all of
# them, without words; with words; and with words in another order on each day. The last days are tested. `check
# --repeats` asks before any model whether the recordings hold words, and a small trained network is compared with the
# controls of time. Two to five minutes on two CPU cores. The results go to the folder given, or to runs/demo_order.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh
out=${1:-runs/demo_order}
mkdir -p "$out"
begun=$SECONDS
for design in "no words, drift of half a run" "words, drift of half a run" "words in random order"; do
  name=${design//[, ]/_}
  printf '\n=== %s ===\n' "$design"
  .venv/bin/python tools/calibrations/order_trap.py --write "$out/$name.h5" --only "$design"
  .venv/bin/eeg2text check "$out/$name.h5" --repeats > "$out/$name.check.txt"
  grep "^repeats" "$out/$name.check.txt"
  .venv/bin/eeg2text run --config=configs/demo_blocks.py:drift --config.data.source="$out/$name.h5" \
    --config.split.method=sessions --config.split.ratio="(0.6,0.2,0.2)" --config.train.steps=300 \
    --config.grid.eval_conditions="('eeg','shuffled','clock','nearest_in_time','same_place','neighbor')" \
    --workdir="$out/$name" > "$out/$name.txt" || [ $? = 10 ] || { cat "$out/$name.txt"; exit 1; } # 10: not beyond its time
  grep "nearest place" "$out/$name.txt" || true
  .venv/bin/python -c 'import json, sys
found = json.load(open(sys.argv[1]))
for c in found["comparisons"]:
    print("against {control}: {effect:+.2f},".format(**c["contrast"]), c["verdict"])
print("VERDICT:", found["headline"])' "$out/$name/audit.json"
done
printf '\nthree designs took %d s; each prints to %s, its report is %s\n' $((SECONDS - begun)) "$out/NAME.txt" "$out/NAME/report.html"
