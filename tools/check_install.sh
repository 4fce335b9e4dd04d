#!/usr/bin/env bash
# Asks pip whether the tested versions fit all extras at once, builds wheel and sdist, installs each in a fresh
# environment away from this clone, and runs the demonstration there:
# `bash tools/check_install.sh DIR` (an empty folder; the run takes minutes). Further arguments go to `eeg2text run`.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
mkdir -p "$1"; out=$(cd "$1" && pwd); shift
python=${PYTHON:-python3}
"$python" -m venv "$out/build"
"$out/build/bin/pip" install -qq --disable-pip-version-check --upgrade pip build
extras=test,app,notebooks,wandb,trackio
"$out/build/bin/pip" install -qq --dry-run --ignore-installed --disable-pip-version-check \
  -c tools/constraints.txt ".[$extras]"
"$out/build/bin/python" -m build -q --outdir "$out/dist" .
for package in "$out"/dist/*.whl "$out"/dist/*.tar.gz; do
  environment=$out/${package##*.}
  "$python" -m venv "$environment"
  "$environment/bin/pip" install -qq --no-compile --disable-pip-version-check -c tools/constraints.txt --upgrade pip
  "$environment/bin/pip" install -qq --no-compile --disable-pip-version-check -c tools/constraints.txt "$package"
  if "$environment/bin/pip" list 2> "$out/pip.log" | grep -iE '^(torch|pytest) '; then
    echo "$package brings what only tests need" >&2
    exit 1
  fi
  echo "${package##*/}: $(du -sm "$environment" | cut -f1) MB"
  (cd "$out" && "$environment/bin/eeg2text" run --config=demo --workdir="$environment/run" "$@")
  (cd "$out" && echo "$(basename "$environment"): exit status 0")
done
