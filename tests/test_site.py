"""The documentation builds without a warning, and what it tells people to type is what there is."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from eeg2text_jax.cli import COMMANDS, command
from eeg2text_jax.study.configuration import load_config, parse_config
from eeg2text_jax.study.ranges import fields

ROOT = Path(__file__).parents[1]
SITE = runpy.run_path(str(ROOT / "tools/site_pages.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TAKE_CONFIG = {  # options of the commands that take a configuration
    "run": ["workdir", "folds"], "train": ["workdir"], "decode": ["workdir"], "prepare": ["out"], "preflight": None,
}  # fmt: skip


def snippets(language: str) -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for code in re.findall(
            rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf8"), re.DOTALL | re.MULTILINE
        ):
            found.append((page.name, code))
    return found


def test_the_site_builds_without_a_warning(tmp_path):
    for package in ("material", "mkdocstrings_handlers.python"):
        pytest.importorskip(package, reason="pip install -e '.[docs]'")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")]
    built = subprocess.run(
        build, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stdout + built.stderr
    for page in ("index.html", "configuration/index.html", "notebooks/own_eeg/index.html", "reference/index.html"):
        assert (tmp_path / "site" / page).is_file(), page
    reference = (tmp_path / "site/reference/index.html").read_text(encoding="utf8")
    assert "&gt;&gt;&gt;" in reference
    assert "<blockquote>" not in reference  # what Markdown makes of `>>>` outside of a section "Examples:"


def test_the_configuration_page_has_every_field_with_its_default():
    page = SITE["configuration_page"]()
    for name, value in fields(load_config("default")):
        (line,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")] or [""]
        if name == "model.shape":
            assert "## model.shape" in page
            continue
        assert line, name
        shown = line.split("|")[2].strip().strip("`")
        assert shown.endswith("...") or eval(shown) == (tuple(value) if isinstance(value, list) else value), name


@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for name, code in snippets("python"):
        if name == page:
            exec(code, names)


@pytest.mark.parametrize(("page", "code"), snippets("bash"))
def test_commands_of_a_page_are_commands(page, code):
    """Every `eeg2text` line: there is such a command, such a configuration, such fields."""
    for line in code.splitlines():
        words = shlex.split(line, comments=True)
        if not words or words[0] != "eeg2text":
            continue
        assert words[1] in COMMANDS, line
        options = TAKE_CONFIG.get(words[1], ())
        if options:
            shorts = ("--compat=", "--strict", "--task=")
            arguments = [word for word in words[2:] if not word.startswith(shorts)]
            parse_config(arguments, words[1], optional=options, default="default", positional="SOURCE")
        elif options is None:
            load_config(next(word for word in words if word.startswith("--config=")).removeprefix("--config="))
        else:
            with pytest.raises(SystemExit) as ended:
                command(words[1])(["--help"])
            assert ended.value.code == 0


def test_notebooks_are_python_without_outputs():
    assert len(SITE["NOTEBOOKS"]) == 3
    for path in SITE["NOTEBOOKS"]:
        assert len(SITE["code_of"](path)) >= 3
        assert '"outputs": []' in path.read_text()
        assert not re.search(r'"outputs": \[[^\]]', path.read_text())
        for module in re.findall(r"(?:from|import) (eeg2text_jax[.\w]*)", "\n".join(SITE["code_of"](path))):
            assert module in ("eeg2text_jax", "eeg2text_jax.data"), "notebooks use public names"
