# Sourced by demo.sh and test.sh: makes .venv with the tested versions, once per change of what it depends on.
# Python compiles what is imported when it is imported; pip would do it with all of torch, for 40 seconds.
unset PYTHONDONTWRITEBYTECODE
stamp=.venv/installed
wanted=$(cat pyproject.toml tools/constraints.txt | cksum)
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]; then
  echo "setting up .venv (once, a few minutes) ..."
  [ -x .venv/bin/python ] || "${PYTHON:-python3}" -m venv .venv
  .venv/bin/python -m pip install -qq --no-compile --disable-pip-version-check -c tools/constraints.txt -e '.[test]'
  echo "$wanted" > "$stamp"
fi
