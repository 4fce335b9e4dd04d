#!/usr/bin/env bash
# Runs every benchmark on a fresh machine and leaves one JSON with the machine's description and all figures.
#   bash tools/benchmarks/bench_all.sh cuda|tpu|cpu OUT.json [base|large|tiny]
# Peers (torch, transformers, CTranslate2) take part where they are installed. A benchmark that fails is recorded with
# its last line; the others still run.
set -euo pipefail
cd "$(dirname "$0")/../.."
kind=${1:-}
out=${2:-}
shape=${3:-base}
case "$kind" in cuda | tpu | cpu) ;; *) sed -n '2,3p' "$0" >&2; exit 2 ;; esac
[ -n "$out" ] || { sed -n '2,3p' "$0" >&2; exit 2; }
if [ ! -x .venv/bin/eeg2text ]; then
  "${PYTHON:-python3}" -m venv .venv
  extra=.; [ "$kind" = cpu ] || extra=".[$kind]"
  .venv/bin/python -m pip install -q -c tools/constraints.txt -e "$extra"
fi
python=.venv/bin/python
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT
dtype=float32
[ "$kind" = cpu ] || dtype=bfloat16

has() { "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$1') is None)"; }

bench() { # NAME ARGUMENTS...: runs `eeg2text bench ARGUMENTS` and keeps its JSON, or the line it ended with
  local name=$1
  shift
  echo "=== $name: eeg2text bench $*"
  if ! .venv/bin/eeg2text bench "$@" --json="$parts/$name.json" 2>&1 | tee "$parts/$name.log"; then
    tail -n 1 "$parts/$name.log" | "$python" -c 'import json, sys; print(json.dumps({"failed": sys.stdin.read().strip()}))' \
      > "$parts/$name.json"
  fi
}

train_peer=() decode_peers=()
has torch && train_peer=(--peer=torch) && decode_peers+=(transformers)
has ctranslate2 && decode_peers+=(ctranslate2 ctranslate2-int8)
bench decode --stage=decode --shape="$shape" --peer="$(IFS=,; echo "${decode_peers[*]}")"
bench test_set --stage=test_set --shape="$shape"
bench train --stage=train --shape="$shape" --dtype=float32 --input "${train_peer[@]}"
[ "$dtype" = float32 ] || bench train_$dtype --stage=train --shape="$shape" --dtype=$dtype --input
bench arms --stage=train --shape="$shape" --dtype=$dtype --arms=2

"$python" - "$parts" "$out" <<'PYTHON'
import importlib.metadata, json, os, pathlib, platform, sys

import jax

parts, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
versions = {}
for name in ("jax", "jaxlib", "flax", "optax", "torch", "transformers", "ctranslate2", "libtpu"):
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        continue
machine = {
    "devices": [device.device_kind for device in jax.devices()],
    "platform": jax.default_backend(),
    "processor": platform.processor() or platform.machine(),
    "cores": os.cpu_count(),
    "python": platform.python_version(),
    "versions": versions,
}
results = {path.stem: json.loads(path.read_text()) for path in sorted(parts.glob("*.json"))}
partial = out.with_name(f".{out.name}.partial")
partial.write_text(json.dumps({"machine": machine, "benchmarks": results}, indent=1) + "\n")
partial.replace(out)
print(f"wrote {out}")
PYTHON
