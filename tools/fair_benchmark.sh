#!/usr/bin/env bash
# Table 4 of the cross-subject paper with our columns: bash tools/fair_benchmark.sh DIR ROW... [--config.FIELD=VALUE ...]
# A ROW is what stands after the colon of configs/fair.py, as model=unicorn,data=zuco; without any, the paper's three.
# Runs go to DIR, a folder a row; finished ones are only read. zuco.h5 and narratives.h5 are looked for here; docs/fair.md
# says how they are made. The three rows at full size are for accelerators.
set -euo pipefail
out=${1:?usage: bash tools/fair_benchmark.sh DIR [ROW ...] [--config.FIELD=VALUE ...]}
shift
rows=() overrides=()
for argument in "$@"; do
  if [[ $argument == --* ]]; then overrides+=("$argument"); else rows+=("$argument"); fi
done
if [[ ${#rows[@]} == 0 ]]; then
  rows=(model=unicorn,data=narratives model=unicorn,data=zuco model=eeg2text,data=zuco)
fi
python=${PYTHON:-python}
folders=()
for row in "${rows[@]}"; do
  folders+=("$out/${row//,/_}")
  printf '\n=== %s ===\n' "$row"
  "$python" -m eeg2text_jax run --config="${FAIR:-configs/fair.py}:$row" --workdir="$out/${row//,/_}" "${overrides[@]}"
done
"$python" -m eeg2text_jax fair-table "${folders[@]}" --json="$out/table4.json"
