"""`eeg2text completion`: a script that bash runs, with the options that each command has."""

import shutil
import subprocess

import pytest

from eeg2text_jax.commands.cli import COMMANDS, main


@pytest.fixture(scope="module")
def script():
    from eeg2text_jax.commands.shell import script

    return script("bash")


def completed(script, *words):
    """What bash offers for the last of the words."""
    listed = " ".join(f"'{word}'" for word in words)
    ask = f"{script}\nCOMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _eeg2text; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes_commands_options_fields_and_configurations(script):
    assert completed(script, "eeg2text", "pre") == ["prepare", "preflight"]
    assert completed(script, "eeg2text", "audit", "--cont") == ["--control"]
    assert completed(script, "eeg2text", "run", "--work") == ["--workdir"]
    assert "--config.decode.num_beams" in completed(script, "eeg2text", "run", "--config.d")
    assert completed(script, "eeg2text", "run", "--config", "=", "ow") == ["own"]
    assert all(f'    {name}) options="--' in script for name in COMMANDS if name not in ("completion", "configs"))


def test_another_shell_is_refused():
    with pytest.raises(SystemExit) as ended:
        main(["completion", "fish"])
    assert ended.value.code == 2
