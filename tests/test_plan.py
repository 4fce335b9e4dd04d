"""The plan of the package: its wings, imports that run downwards and in no circle, names that say one thing."""

import ast
import fnmatch
import graphlib
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "eeg2text_jax"
LINT = "import sys; from importlinter.cli import lint_imports as lint; sys.exit(lint(no_cache=True, no_logo=True))"

# Names that two modules share, as they say the same: a command, and what it calls.
SHARED = {"audit", "read", "score", "__init__"}

# What is written once, and where.
HOMES = {
    r"\w*partial\.(replace|rename)\(": "base/files.py",  # write, then rename
    r"sha256\(json\.dumps\([^()]*sort_keys": "base/files.py",
    r"\bdifflib\.": "base/errors.py",  # did you mean
    r"splitlines\(\)\[0\]|\.join\(str\(error\)\.split": "base/errors.py",  # an error's first line, an error on one line
    r"\bprocess_index\(\)": "base/devices/hosts.py",  # the main host
    r"\bimport importlib\.metadata|from importlib\.metadata|eeg2text_jax-\{": "base/packages.py",
}


def lint(root: Path) -> subprocess.CompletedProcess:
    """Holds the tree in `root` against the layers of its `pyproject.toml`."""
    return subprocess.run([sys.executable, "-c", LINT], cwd=root, capture_output=True, text=True, check=False)


def test_imports_run_downwards():
    found = lint(ROOT)
    assert found.returncode == 0, found.stdout


def test_an_import_upwards_and_a_folder_without_a_place_are_found(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__")
    package = shutil.copytree(ROOT / "eeg2text_jax", tmp_path / "eeg2text_jax", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    module = package / "data/text.py"
    module.write_text(f"{module.read_text()}\n\ndef _late():\n    from eeg2text_jax.training import loop\n")
    (package / "helpers").mkdir()
    (package / "helpers/__init__.py").write_text("")
    found = lint(tmp_path)
    assert found.returncode == 1
    assert "eeg2text_jax.data.text -> eeg2text_jax.training.loop" in found.stdout
    assert "helpers" in found.stdout


def test_no_circle():
    """Imports for types alone count, too."""
    graph = grimp.build_graph("eeg2text_jax", exclude_type_checking_imports=False, cache_dir=None)
    order = graphlib.TopologicalSorter({name: graph.find_modules_directly_imported_by(name) for name in graph.modules})
    order.prepare()  # raises CycleError


def test_modules_that_comments_name_are_there():
    """Of `data` and `judge`, fields of a configuration have such names, too."""
    wings = [path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name not in ("data", "judge")]
    named = re.compile(rf"`(?:{'|'.join(wings)})\.\w+")
    modules = {f"{path.parent.relative_to(PACKAGE).as_posix()}.{path.stem}" for path in PACKAGE.rglob("*.py")}
    modules |= {path.relative_to(PACKAGE).as_posix().replace("/", ".") for path in PACKAGE.glob("*/*") if path.is_dir()}
    pointers = {found[1:] for path in PACKAGE.rglob("*.py") for found in named.findall(path.read_text("utf8"))}
    assert len(pointers) > 5
    assert pointers <= modules


def test_names_of_modules_say_one_thing():
    paths = (ROOT / "eeg2text_jax").rglob("*.py")
    counts = Counter(path.stem for path in paths)
    assert {name for name, count in counts.items() if count > 1} <= SHARED


def test_the_first_level_shows_the_wings():
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir()} - {"__pycache__"}
    assert len(folders) <= 9
    assert {path.name for path in PACKAGE.iterdir() if path.is_file()} == {"__init__.py", "__main__.py", "py.typed"}
    for name in folders:
        doc = ast.get_docstring(ast.parse((PACKAGE / name / "__init__.py").read_text(encoding="utf8")))
        assert "In: " in doc, f"{name} says what flows in and out"
        assert "Out: " in doc, f"{name} says what flows in and out"


def test_what_is_private_stays_in_its_wing():
    graph = grimp.build_graph("eeg2text_jax", exclude_type_checking_imports=False, cache_dir=None)
    private = [name for name in graph.modules if any(re.match("_[a-z]", part) for part in name.split("."))]
    assert private
    for name in private:
        wing = name.split(".")[1]
        users = graph.find_modules_that_directly_import(name)
        assert {user.split(".")[1] for user in users} <= {wing}, f"{name} is private to {wing}"


HEAVY = {"jax", "flax", "optax", "orbax", "grain", "transformers", "tokenizers", "h5py", "ml_collections"}
AUDIT = "import sys; from eeg2text_jax.commands.cli import main; main(['audit', '--eeg', sys.argv[1]])"
PAGE = "import eeg2text_jax.instrument.app._worker; from eeg2text_jax.instrument.auditing import audit, report"


@pytest.mark.parametrize(
    "what", [AUDIT, PAGE, "import eeg2text_jax.instrument.app.interface"], ids=["audit", "job", "page"]
)
def test_what_judges_files_loads_little(tmp_path, what):
    if "interface" in what:
        pytest.importorskip("gradio")
    rows = [f"{i}\tthe {i} sat on mat {i}\tthe {i} sat {i}\ta dog {7 * i % 60}" for i in range(60)]
    path = tmp_path / "rows.tsv"
    path.write_text("\n".join(["id\treference\teeg\tnoise", *rows]) + "\n")
    command = [sys.executable, "-X", "importtime", "-c", what, str(path)]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[-2000:]
    assert what != AUDIT or "VERDICT: " in made.stdout
    loaded = re.findall(r"^import time:.*\| +(\S+)$", made.stderr, re.MULTILINE)
    assert not HEAVY & {name.partition(".")[0] for name in loaded}
    assert 5 < sum(name.startswith("eeg2text_jax") for name in loaded) <= 95


@pytest.mark.parametrize(("idiom", "home"), HOMES.items())
def test_each_idiom_is_written_once(idiom, home):
    paths = [*(ROOT / "eeg2text_jax").rglob("*.py"), *(ROOT / "configs").glob("*.py")]
    found = [path for path in paths if re.search(idiom, path.read_text(encoding="utf8"))]
    assert found == [ROOT / "eeg2text_jax" / home]


def test_no_file_has_marks_of_an_unfinished_merge():
    folders = ("configs", "docs", "eeg2text_jax", "tests", "tools")
    kinds = ("*.py", "*.md", "*.html", "*.tsv", "*.ipynb", "*.sh")
    files = [*ROOT.glob("*.md"), *(path for name in folders for kind in kinds for path in (ROOT / name).rglob(kind))]
    assert len(files) > 450
    marks = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)
    assert not [path for path in files if marks.search(path.read_text("utf8"))]


def test_what_contributing_names_exists():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf8")
    named = [name for name in re.findall(r"`([a-z_0-9/.]+)`", text) if "/" in name]
    assert len(named) >= 10
    assert [
        name for name in named if not any((folder / name).exists() for folder in (ROOT, PACKAGE, ROOT / "tools"))
    ] == []
    wings = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert {path.name for path in PACKAGE.iterdir() if path.is_dir()} - {"__pycache__"} == set(wings)


def test_every_tool_is_in_the_table_of_tools():
    table = (ROOT / "docs/testing.md").read_text(encoding="utf8").partition("## Tools")[2]
    named = [name.rstrip("/") for name in re.findall(r"`([^`\s]+)`", table)]
    tools = [path.name for path in (ROOT / "tools").iterdir() if path.name != "__pycache__"]
    assert [name for name in tools if not any(fnmatch.fnmatch(name, pattern) for pattern in named)] == []
