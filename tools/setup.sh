# Sourced by demo.sh and test.sh: makes .venv with the tested versions, once per change of what it depends on.
stamp=.venv/installed
wanted=$(cat pyproject.toml tools/constraints.txt | cksum)
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]; then
  echo "setting up .venv (once, a few minutes) ..."
  [ -x .venv/bin/python ] || "${PYTHON:-python3}" -m venv .venv
  .venv/bin/python -m pip install -qq --disable-pip-version-check -c tools/constraints.txt -e '.[test]'
  echo "$wanted" > "$stamp"
fi
