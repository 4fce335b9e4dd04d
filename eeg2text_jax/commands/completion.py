"""`eeg2text completion bash|zsh`: a script that completes commands, options, fields and shipped configurations.

Write the script to a file (`eeg2text completion bash > FILE`) and `source FILE` in the start-up file: collecting
the options takes seconds, as every command is imported.
"""

import argparse
import contextlib
import io
import re
from collections.abc import Sequence

from eeg2text_jax.commands.overview import COMMANDS, command
from eeg2text_jax.study.shipped import shipped

SCRIPT = """\
_eeg2text() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" options=""
  COMPREPLY=()
  if [[ $COMP_CWORD -eq 1 ]]; then
    COMPREPLY=($(compgen -W "{commands}" -- "$word"))
    return
  fi
  if [[ $word == "=" ]]; then before="${{COMP_WORDS[COMP_CWORD-1]}}"; word=""
  elif [[ $before == "=" ]]; then before="${{COMP_WORDS[COMP_CWORD-2]}}"; fi
  if [[ $before == "--config" ]]; then
    COMPREPLY=($(compgen -W "{configurations}" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  if [[ $word == -* ]]; then COMPREPLY=($(compgen -W "$options" -- "$word")); compopt -o nospace 2>/dev/null; fi
}}
complete -o default -F _eeg2text eeg2text
"""
ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="eeg2text completion", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("shell", choices=("bash", "zsh"))
    print(script(parser.parse_args(argv).shell), end="")
    return 0


def script(shell: str) -> str:
    """Return the script for a shell; zsh runs that of bash."""
    cases = [f'    {name}) options="{" ".join(options_of(name))}" ;;' for name in COMMANDS if name != "completion"]
    words = {"commands": " ".join(COMMANDS), "configurations": " ".join(shipped()), "cases": "\n".join(cases)}
    return (ZSH if shell == "zsh" else "") + SCRIPT.format(**words)


def options_of(name: str) -> list[str]:
    """Return the options of a command, as its own `--help` lists them."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        command(name)(["--help"])
    return list(dict.fromkeys(re.findall(r"^ +(?:-\w, )?(--[\w.-]+)", said.getvalue(), re.MULTILINE)))
