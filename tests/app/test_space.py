"""The folder of a Space: requirements from the extra, a program that serves, the page's parts where gradio is there."""

import importlib.util
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.app.interface import build, request_of

ROOT = Path(__file__).parents[2]
GRADIO = importlib.util.find_spec("gradio")


def test_a_space_has_its_requirements_and_imports_from_its_folder_alone(tmp_path):
    made = runpy.run_path(str(ROOT / "tools/space/make_space.py"))
    made["make"](tmp_path / "space")
    lines = (tmp_path / "space/requirements.txt").read_text().splitlines()
    assert {line.partition(">")[0] for line in lines} >= {"gradio", "openpyxl", "pyarrow", "scipy", "sacrebleu"}
    assert not any(line.startswith("eeg2text") for line in lines)
    place = "eeg2text_jax.instrument.app.interface"
    code = f"import app, sys, {place} as shown; print(shown.field_page(), 'jax' in sys.modules)"
    command = [sys.executable, "-c", code]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path / "space", env=environment, capture_output=True, text=True)
    assert done.stdout.split() == [str(tmp_path / "space/eeg2text_jax/instrument/app/field.md"), "False"], done.stderr
    with pytest.raises(FileExistsError):
        made["make"](tmp_path / "space")


def test_choices_become_a_request():
    assert request_of("as recognised", "pred", "not stated") == {"columns": None, "mode": None, "proof": ""}
    found = request_of("truth", "pred", "free running: no target reached the decoder", "https://example.org")
    assert found == {"columns": ["truth", "pred"], "mode": "free_running", "proof": "https://example.org"}


@pytest.mark.skipif(GRADIO is not None, reason="gradio is installed")
def test_a_page_without_gradio_names_the_extra():
    with pytest.raises(UserError, match=r"pip install 'eeg2text_jax\[app\]'"):
        build()


@pytest.mark.skipif(GRADIO is None, reason="pip install 'eeg2text_jax[app]'")
def test_the_page_is_built_with_one_queue_for_all_its_jobs():
    code = (
        "from eeg2text_jax.instrument.app.interface import WAITING, build; page = build();"
        "print({f.concurrency_limit - WAITING for f in page.fns.values() if f.concurrency_id == 'job'})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "{0}", done.stderr
