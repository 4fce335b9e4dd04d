"""The configuration as frozen dataclasses: complete, typed, and what functions take."""

import ast
import dataclasses
import typing
from pathlib import Path

import pytest
from ml_collections import ConfigDict
from tiny_run import tiny_config

from eeg2text_jax.base.kinds import plain
from eeg2text_jax.training.configuration import load_config
from eeg2text_jax.training.sections import read_settings

PACKAGE = Path(__file__).parents[1] / "eeg2text_jax"
BELOW_STUDY = ("base", "data", "instrument", "models", "decoding")
# Modules whose functions make, edit or check a configuration as users write it. The list only shrinks.
TAKE_ALL = {"runs/notebook.py", "runs/python_data.py", "training/configuration.py", "training/sections.py"}


def takes_config(path: Path) -> bool:
    """Whether an argument or a field of a class has ConfigDict in its annotation."""
    text = path.read_text(encoding="utf8")
    if "ConfigDict" not in text:
        return False
    tree = ast.parse(text)
    annotations = [node.annotation for node in ast.walk(tree) if isinstance(node, ast.arg | ast.AnnAssign)]
    return any("ConfigDict" in ast.unparse(found) for found in annotations if found is not None)


def test_functions_below_study_take_sections():
    found = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if takes_config(path)}
    assert not {name for name in found if name.partition("/")[0] in BELOW_STUDY}
    assert found == TAKE_ALL


def test_the_loop_imports_few_modules():
    tree = ast.parse((PACKAGE / "training/loop.py").read_text(encoding="utf8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert len({name for name in imported if name.startswith("eeg2text_jax")}) <= 18


def leaves(section: object, prefix: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        name = f"{prefix}{field.name}"
        found |= leaves(value, f"{name}.") if dataclasses.is_dataclass(value) else {name: value}
    return found


@pytest.mark.parametrize("name", ["default", "demo", "paper", "demo_fmri"])
def test_settings_hold_what_the_configuration_says(name):
    config = load_config(name)
    settings = read_settings(config)
    assert settings.document == plain(config)
    for dotted, value in leaves(settings).items():
        if dotted == "decode.others":
            continue
        found = config
        for part in dotted.split("."):
            found = found[part]
        assert value == (found.to_dict() if isinstance(found, ConfigDict) else found), dotted


def test_fields_have_the_types_that_they_declare():
    """Numbers are numbers and tuples are tuples, as a type checker believes."""

    def check(section: object) -> None:
        for name, hint in typing.get_type_hints(type(section)).items():
            value, kind = getattr(section, name), typing.get_origin(hint) or hint
            if dataclasses.is_dataclass(value):
                check(value)
            if kind is typing.Literal:
                assert value in typing.get_args(hint), name
            else:
                assert isinstance(value, (int, float) if kind is float else kind), name

    check(read_settings(tiny_config()))
