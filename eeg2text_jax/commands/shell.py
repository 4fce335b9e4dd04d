"""Commands without input files: `eeg2text configs`, `eeg2text completion` and `eeg2text app`."""

import argparse
import contextlib
import io
import os
import re
from collections.abc import Sequence
from pathlib import Path

from eeg2text_jax.base.errors import UserError, did_you_mean
from eeg2text_jax.base.files import write_text
from eeg2text_jax.commands.cli import COMMANDS, command
from eeg2text_jax.training.configuration import shipped, summary


def configs(argv: Sequence[str]) -> int:
    """List the bundled configurations; `show NAME` prints one, `copy NAME` writes it to a file for editing."""
    arguments = _parse_configs(argv)
    bundled = shipped()
    if arguments.action is None:
        for name, path in bundled.items():
            print(f"{name:<12} {summary(path)}")
        print("\n`--config=NAME` uses one unchanged; `eeg2text configs copy NAME` writes it to a file for editing.")
        return 0
    if arguments.name not in bundled:
        raise UserError(f"{arguments.name}: there is no such configuration; {did_you_mean(arguments.name, bundled)}")
    text = bundled[arguments.name].read_text(encoding="utf8")
    if arguments.action == "show":
        print(text, end="")
        return 0
    out = Path(arguments.out or f"{arguments.name}.py")
    if out.exists():
        raise UserError(f"{out}: exists already; name another file with --out, or remove this one.")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, text)
    print(f"wrote {out}; use it with --config={out}")
    return 0


def _parse_configs(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="eeg2text configs", description=configs.__doc__)
    actions = parser.add_subparsers(dest="action", metavar="show | copy")
    for name, what in (("show", "print a configuration"), ("copy", "write it to a file of your own, to be edited")):
        action = actions.add_parser(name, help=what, description=what)
        action.add_argument("name", help="name of a configuration in the list of `eeg2text configs`")
        if name == "copy":
            action.add_argument("--out", default="", help="the new file; NAME.py of the current folder by default")
    return parser.parse_args(argv)


def app(argv: Sequence[str]) -> int:
    """Serve a web page that audits files of decoded text, until interrupted."""
    parser = argparse.ArgumentParser("eeg2text app", description=app.__doc__)
    host = os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1")  # a Space of Hugging Face sets this variable
    parser.add_argument("--host", default=host, help="address to serve on; by default only this machine's browsers")
    parser.add_argument("--port", type=int, default=7860, help="7860 by default")
    flags = parser.parse_args(argv)
    from eeg2text_jax.instrument.app.interface import serve

    serve(flags.host, flags.port)
    return 0


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


def completion(argv: Sequence[str]) -> int:
    """Print a script for bash or zsh that completes commands, options, fields and bundled configurations.

    Write the script to a file (`eeg2text completion bash > FILE`) and `source FILE` in the shell's start-up file.
    Making the script takes seconds, because every command is imported.
    """
    parser = argparse.ArgumentParser(prog="eeg2text completion", description=completion.__doc__)
    parser.add_argument("shell", choices=("bash", "zsh"))
    print(script(parser.parse_args(argv).shell), end="")
    return 0


def script(shell: str) -> str:
    """Return the completion script; zsh runs it through bashcompinit."""
    cases = [f'    {name}) options="{" ".join(options_of(name))}" ;;' for name in COMMANDS if name != "completion"]
    words = {"commands": " ".join(COMMANDS), "configurations": " ".join(shipped()), "cases": "\n".join(cases)}
    return (ZSH if shell == "zsh" else "") + SCRIPT.format(**words)


def options_of(name: str) -> list[str]:
    """Return the options of a command, as its `--help` lists them."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        command(name)(["--help"])
    return list(dict.fromkeys(re.findall(r"^ +(?:-\w, )?(--[\w.-]+)", said.getvalue(), re.MULTILINE)))
