"""docs/papers.md: every command, field, file and test that it names exists, and it equals its table."""

import ast
import functools
import re
import runpy
import shlex
from pathlib import Path

import pytest

from eeg2text_jax.commands.cli import COMMANDS, main
from eeg2text_jax.training.configuration import load_config
from eeg2text_jax.training.sections import fields

ROOT = Path(__file__).parents[1]
PAGE = runpy.run_path(str(ROOT / "tools/site/papers_page.py"))
ROWS = PAGE["rows"]()


@functools.cache
def known(config: str) -> set[str]:
    if config == "judge":
        found = runpy.run_path(str(ROOT / "configs/judge.py"))["get_config"]("")
        return {name for name, _ in fields(found)}
    return {name for name, _ in fields(load_config("default"))}


@functools.cache
def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def check(reference: str, capsys) -> None:
    kind, _, rest = reference.partition(" ")
    if kind in ("config", "judge"):
        assert rest in known(kind), reference
    elif kind == "eeg2text":
        name, *words = shlex.split(rest)
        assert name in COMMANDS, reference
        flags = [word.partition("=")[0] for word in words if word.startswith("--")]
        if "--config" in flags:
            (config,) = [word.partition("=")[2] for word in words if word.startswith("--config=")]
            assert (ROOT / config).is_file(), reference
        elif flags:
            with pytest.raises(SystemExit):
                main([name, "--help"])
            helped = capsys.readouterr().out
            assert all(re.search(rf"{re.escape(flag)}[ \n\]]", helped) for flag in flags), reference
    else:
        path, _, test = reference.partition("::")
        assert (ROOT / path).is_file(), reference
        assert not test or (test.startswith("test_") and test in functions_of(path)), reference


@pytest.mark.parametrize("paper", PAGE["PAPERS"])
def test_what_a_row_names_is_there(paper, capsys):
    mine = [row for row in ROWS if row["paper"] == paper]
    assert len(mine) > 4
    for row in mine:
        for reference in PAGE["references"](row):
            check(reference, capsys)
        assert PAGE["references"](row) or row["differs or needs"], row["says"]


@pytest.mark.parametrize(
    "wrong",
    ["config train.epoch", "judge promt", "eeg2text leak", "eeg2text score --profle=paper", "docs/none.md",
     "tests/test_papers.py::test_of_nothing", "eeg2text run --config=configs/none.py"],
)  # fmt: skip
def test_what_is_not_there_is_found(wrong, capsys):
    with pytest.raises(AssertionError):
        check(wrong, capsys)


def test_the_page_is_that_of_the_table():
    assert (ROOT / "docs/papers.md").read_text(encoding="utf8") == PAGE["page"](), "python tools/site/papers_page.py"
    assert "papers.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf8")
    assert {row["paper"] for row in ROWS} == {*PAGE["PAPERS"]}
