#!/usr/bin/env bash
# Asks pip whether the tested versions fit all extras at once, builds wheel and sdist, checks what an index would show of
# them, and installs them in fresh environments away from this clone: the wheel with the newest and with the oldest
# versions of jax, flax and transformers that pyproject.toml allows, the sdist with the tested ones. In each the example
# prints its verdict, without a network where `unshare -n` is allowed; with the tested versions the demonstration runs:
# `bash tools/check_install.sh DIR` (an empty folder; the run takes minutes). Further arguments go to `eeg2text run`.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p "$1"; out=$(cd "$1" && pwd); shift
python=${PYTHON:-python3}
"$python" -m venv "$out/build"
"$out/build/bin/pip" install -qq --disable-pip-version-check --upgrade pip build twine
extras=test,app,notebooks,wandb,trackio
"$out/build/bin/pip" install -qq --dry-run --ignore-installed --disable-pip-version-check \
  -c tools/constraints.txt ".[$extras]"
"$out/build/bin/python" -m build -q --outdir "$out/dist" .
"$out/build/bin/twine" check --strict "$out"/dist/*
# The least versions that pyproject.toml allows
grep -oE '^  "(jax|flax|transformers)>=[0-9.]+' pyproject.toml | sed 's/^ *"//; s/>=/==/' > "$out/oldest.txt"
isolated=$(unshare -n true 2> /dev/null && echo "unshare -n" || true)
for name in newest oldest tested; do
  environment=$out/$name
  package=$(ls "$out"/dist/*.whl)
  constraints=()
  case $name in
    oldest) constraints=(-c "$out/oldest.txt") ;;
    tested) constraints=(-c tools/constraints.txt); package=$(ls "$out"/dist/*.tar.gz) ;;
  esac
  "$python" -m venv "$environment"
  "$environment/bin/pip" install -qq --no-compile --disable-pip-version-check --upgrade pip
  "$environment/bin/pip" install -qq --no-compile --disable-pip-version-check "${constraints[@]}" "$package"
  if "$environment/bin/pip" list 2> "$out/pip.log" | grep -iE '^(torch|pytest) '; then
    echo "$package brings what only tests need" >&2
    exit 1
  fi
  echo "$name: $("$environment/bin/pip" freeze 2> "$out/pip.log" | grep -E '^(jax|flax|transformers)=' | tr '\n' ' ')" \
    "$(du -sm "$environment" | cut -f1) MB"
  (cd "$environment" && time $isolated bin/eeg2text example | tail -n 1)
  (cd "$environment" && $isolated bin/eeg2text run --config=demo --workdir=run --dry-run > dry.txt) # imports the models
done
(cd "$out" && "$out/tested/bin/eeg2text" run --config=demo --workdir="$out/run" "$@")
