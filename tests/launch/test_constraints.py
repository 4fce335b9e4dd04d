"""`tools/constraints.txt` fits every extra at once. `tools/check_install.sh` asks pip the same, with a network."""

import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
HARDWARE = {"tpu", "cuda", "preflight", "preflight-cuda"}  # their libraries follow JAX's own pins


def pins() -> dict[str, str]:
    lines = (ROOT / "tools/constraints.txt").read_text().splitlines()
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines[1:])}


def unmet(requirements: list[str], versions: dict[str, str]) -> list[str]:
    """The requirements for this machine that a version contradicts, or that have none."""
    found = []
    for requirement in map(Requirement, requirements):
        version = versions.get(canonicalize_name(requirement.name))
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            found.append(str(requirement))
    return found


def of_extras() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    some = [libraries for extra, libraries in project["optional-dependencies"].items() if extra not in HARDWARE]
    return [library for libraries in [project["dependencies"], *some] for library in libraries if "eeg2" not in library]


def test_every_library_of_every_extra_has_a_version_that_fits():
    assert unmet(of_extras(), pins()) == []


@pytest.mark.parametrize("changed", [{"gradio": "5.0"}, {"pillow": None}, {"nbclient": "0.9"}])
def test_a_version_that_does_not_fit_is_found(changed):
    versions = {name: version for name, version in (pins() | changed).items() if version}
    assert len(unmet([*of_extras(), "pillow<13"], versions)) == 1


def test_versions_fit_each_other():
    """What the installed libraries ask of each other; the page's are asked, too, where they are installed."""
    installed = {canonicalize_name(found.name): found.requires or [] for found in metadata.distributions()}
    wrong = {name: unmet(installed[name], pins()) for name in pins().keys() & installed.keys()}
    assert {name: some for name, some in wrong.items() if some} == {}
