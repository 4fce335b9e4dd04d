#!/usr/bin/env bash
# Sets up .venv on first use, then lints and runs the whole test suite. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
extras='[test]'
source tools/setup.sh
.venv/bin/ruff check .
.venv/bin/ruff format --check .
# A file's tests stay in one process: what they share is made once.
exec .venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder "$@"
