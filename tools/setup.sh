# Sourced by demo.sh and test.sh: makes .venv with the tested versions, once per change of what it depends on.
# `extras` are those of pyproject.toml: none for the demonstration, which needs neither torch nor test tools.
# Python compiles what is imported when it is imported; pip would do it with all of torch, for 40 seconds.
unset PYTHONDONTWRITEBYTECODE
extras=${extras-}
wanted=$(cat pyproject.toml tools/constraints.txt | cksum)
stamp=.venv/installed${extras}
# What the tests need is more than what the demonstration does.
if ! grep -qsxF "$wanted" "$stamp" '.venv/installed[test]'; then
  echo "setting up .venv (once, a few minutes) ..."
  [ -x .venv/bin/python ] || "${PYTHON:-python3}" -m venv .venv
  # Python 3.11's own pip takes 60 seconds to find what newer ones find in 20.
  .venv/bin/python -m pip install -qq --disable-pip-version-check -c tools/constraints.txt --upgrade pip
  .venv/bin/python -m pip install -qq --no-compile --disable-pip-version-check -c tools/constraints.txt -e ".$extras"
  echo "$wanted" > "$stamp"
fi
