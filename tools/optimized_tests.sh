#!/usr/bin/env bash
# Before a release: the tests that hold models and decoding against PyTorch, and those that read compiled programs, with
# all of XLA's optimizations, which the suite leaves out as it compiles more than it computes. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh
export JAX_DISABLE_MOST_OPTIMIZATIONS=0
# Programs that were compiled with less are not to be found.
export JAX_COMPILATION_CACHE_DIR="$PWD/.pytest_cache/jax_optimized"
reading_programs=$(grep -rlE 'as_text\(|collectives\(' tests --include='test_*.py')
mapfile -t files < <(printf '%s\n' tests/parity tests/models/test_properties.py tests/decoding/test_exported.py \
  $reading_programs | sort -u)
exec .venv/bin/python -m pytest "${files[@]}" "$@"
