#!/usr/bin/env bash
# Runs on a disk that is too small, a tmpfs in a mount namespace of its own, for each of some sizes; expects one sentence
# and exit status 2, then gives it room and expects the same command to finish. Linux; run from a clone.
#
#   bash tools/full_disk.sh [SIZE...]        default: 100k 1m 3m 6m
set -euo pipefail
if [ "${FULL_DISK_INSIDE:-}" != 1 ]; then
  FULL_DISK_INSIDE=1 exec unshare --user --map-root-user --mount bash "$0" "$@"
fi
disk=$(mktemp -d)
run() {
  python -m eeg2text_jax run --config=configs/demo.py --workdir="$disk/run" --config.data.synthetic.sentences=200 \
    --config.data.synthetic.features=16 --config.batch.buckets='((20,40),)' --config.model.shape.d_model=32 \
    --config.model.encoder_ffn=32 --config.train.steps=40 --config.train.save_every=10 --config.train.eval_every=20 \
    --config.train.log_every=5 --config.decode.max_length=8 --config.audit.resamples=100
}
for s in ${@:-100k 1m 3m 6m}; do
  mount -t tmpfs -o size="$s" tmpfs "$disk"
  status=0
  run > "$disk.out" 2> "$disk.err" || status=$?
  printf '%s: status %d: ' "$s" "$status"
  cat "$disk.err"
  [ "$status" = 2 ] && [ "$(wc -l < "$disk.err")" = 1 ]
  mount -o remount,size=500m "$disk"
  run > "$disk.out" 2>&1 || { tail -20 "$disk.out"; exit 1; }
  printf '%s: with room it finished: %s\n' "$s" "$(grep -E 'going on from|^VERDICT' "$disk.out" | tr '\n' ' ')"
  umount "$disk"
done
