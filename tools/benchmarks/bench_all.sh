#!/usr/bin/env bash
# Runs every benchmark on a machine and leaves one JSON with the machine's description and all figures.
#   bash tools/benchmarks/bench_all.sh cuda|tpu|cpu OUT.json [base|large|tiny ...]
# Peers (torch, transformers, CTranslate2) run on the same device where they are installed. Tokens or losses that differ
# are recorded beside the times; a benchmark that fails is recorded with its last line, and the others still run.
# Started again after it was killed, it goes on with what is missing (OUT.json.parts). WHEELS=FOLDER installs from
# wheels, without a network; SKIP_INSTALL=1 takes the .venv that is there. Where time is short, BATCHES="8,32 128",
# BUCKETS=56:56, PEERS="torch transformers" and ONLY=REGEX (of names such as train_large_bfloat16_32) leave out the rest.
set -euo pipefail
cd "$(dirname "$0")/../.."
kind=${1:-}
out=${2:-}
shift $(($# < 2 ? $# : 2))
shapes=("${@:-base}")
case "$kind" in cuda | tpu | cpu) ;; *) sed -n '2,9p' "$0" >&2; exit 2 ;; esac
[ -n "$out" ] || { sed -n '2,9p' "$0" >&2; exit 2; }
if [ ! -x .venv/bin/python ] && [ -z "${SKIP_INSTALL:-}" ]; then
  "${PYTHON:-python3}" -m venv .venv
  extra=.; [ "$kind" = cpu ] || extra=".[$kind]"
  if [ -n "${WHEELS:-}" ]; then
    .venv/bin/python -m pip install -q --no-index --find-links="$WHEELS" -e "$extra"
    # Peers that have a wheel there; one that does not install is left out of the measurement.
    for peer in torch transformers ctranslate2; do
      .venv/bin/python -m pip install -q --no-index --find-links="$WHEELS" "$peer" || echo "no wheel of $peer" >&2
    done
  else
    .venv/bin/python -m pip install -q -c tools/constraints.txt -e "$extra"
  fi
fi
python=.venv/bin/python
export XLA_PYTHON_CLIENT_PREALLOCATE=false # JAX would take three quarters of a GPU's memory, which peers need, too
parts=$out.parts
mkdir -p "$parts"
has() { "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$1') is None)"; }

bench() { # NAME STAGE ARGUMENTS...: measures the stage and keeps its JSON with its status, or its last line
  local name=$1 stage=$2 status=0 making
  shift 2
  if ! [[ $name =~ ${ONLY:-.} ]]; then return; fi
  if [ -s "$parts/$name.json" ]; then echo "=== $name: done before"; return; fi
  echo "=== $name: beside.py $stage $*"
  making="$parts/$name.making"
  rm -f "$making"
  "$python" tools/benchmarks/beside.py "$stage" "$@" --json="$making" 2>&1 | tee "$parts/$name.log" || status=$?
  "$python" - "$making" "$parts/$name.log" "$status" "$parts/$name.json" "$stage $*" <<'PYTHON'
import json, os, pathlib, sys

making, log, status, out, arguments = sys.argv[1:]
found = json.loads(pathlib.Path(making).read_text()) if os.path.exists(making) else {}
lines = pathlib.Path(log).read_text(errors="replace").strip().splitlines() or [""]
told = {"arguments": arguments, "status": int(status), **found}
if not found:
    told["failed"] = lines[-1]
pathlib.Path(out + ".partial").write_text(json.dumps(told, indent=1))
os.replace(out + ".partial", out)  # so that a part is whole or missing
PYTHON
  rm -f "$making"
}

train_peers=() decode_peers=()
has torch && train_peers+=(torch torch-compiled)
has torch && has transformers && decode_peers+=(transformers transformers-static)
has ctranslate2 && decode_peers+=(ctranslate2 ctranslate2-int8)
if has ctranslate2 && [ "$kind" != cpu ]; then decode_peers+=(ctranslate2-float16); fi
asked() { # PEER...: those that PEERS names, all without it
  local peer
  for peer in "$@"; do case " ${PEERS-$peer} " in *" $peer "*) echo "$peer" ;; esac; done
}
mapfile -t train_peers < <(asked "${train_peers[@]+"${train_peers[@]}"}")
mapfile -t decode_peers < <(asked "${decode_peers[@]+"${decode_peers[@]}"}")
dtypes=(float32)
[ "$kind" = cpu ] || dtypes+=(bfloat16)
training=()
[ -z "${BUCKETS:-}" ] || training+=("--buckets=$BUCKETS")
[ "$kind" = cpu ] || training+=(--remat) # as configs/paper.py; on an H100 it is also faster
joined() { local IFS=,; echo "$*"; }
batches=${BATCHES:-8,32 128}
[ -n "${BATCHES:-}" ] || [ "$kind" = cpu ] || batches="8,32 128 256"
[ -n "${BATCHES:-}" ] || [ "$kind" != cpu ] || batches="8,32"

for shape in "${shapes[@]}"; do
  for dtype in "${dtypes[@]}"; do
    products_peer=; has torch && products_peer=torch
    bench "products_${shape}_$dtype" products --shape="$shape" --dtype="$dtype" --peer="$products_peer"
    for batch in $batches; do
      bench "decode_${shape}_${dtype}_$batch" decode --shape="$shape" --dtype="$dtype" --batch="$batch" --int8 \
        --peer="$(joined "${decode_peers[@]+"${decode_peers[@]}"}")"
      for size in ${batch//,/ }; do
        bench "train_${shape}_${dtype}_$size" train --shape="$shape" --dtype="$dtype" --batch="$size" \
          "${training[@]+"${training[@]}"}" --peer="$(joined "${train_peers[@]+"${train_peers[@]}"}")"
      done
    done
  done
done

"$python" - "$parts" "$out" <<'PYTHON'
import json, os, pathlib, sys

from eeg2text_jax.commands.bench import describe_machine

parts, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
results = {path.stem: json.loads(path.read_text()) for path in sorted(parts.glob("*.json"))}
partial = out.with_name(f".{out.name}.partial")
partial.write_text(json.dumps({"machine": describe_machine(), "benchmarks": results}, indent=1) + "\n")
os.replace(partial, out)
failed = [name for name, result in results.items() if "failed" in result]
differ = [name for name, result in results.items() if result["status"] and "failed" not in result]
print(f"wrote {out}: {len(results)} benchmarks; failed: {failed or 'none'}; results that differ: {differ or 'none'}")
PYTHON
