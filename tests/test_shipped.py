"""The package bundles configurations, and a file anywhere may build on them."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.cli import main
from eeg2text_jax.training.configuration import find_config, load_config, shipped, summary

ROOT = Path(__file__).parents[1]


def test_every_configuration_is_listed_with_what_it_is(printed_by):
    files = {path.stem for path in (ROOT / "configs").glob("*.py")} - {"arguments"}
    assert set(shipped()) == files
    assert all(10 < len(summary(path)) < 130 for path in shipped().values())
    listed = printed_by(["configs"])
    assert all(f"{name} " in listed for name in files)


def test_a_bare_name_is_the_shipped_one_and_a_file_is_the_users(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_config("demo:null").grid.seeds == (0, 1, 2)
    assert load_config("paper:backbone=t5").model.backbone == "t5"
    (tmp_path / "demo").write_text("def get_config():\n    from configs import leak\n    return leak.get_config()\n")
    assert find_config("demo") == Path("demo")
    assert load_config("demo").data.synthetic.subjects == 40


def test_a_copy_works_anywhere_and_is_not_written_over(tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    assert main(["configs", "copy", "paper", "--out=mine/own.py"]) == 0
    assert load_config("mine/own.py:backbone=t5").model.backbone == "t5"
    (tmp_path / "mine/own.py").write_text("kept")
    refused(["configs", "copy", "paper", "--out=mine/own.py"])
    assert (tmp_path / "mine/own.py").read_text() == "kept"
    assert "did you mean 'paper'?" in refused(["configs", "copy", "papre"])
    assert sorted(path.name for path in tmp_path.rglob("*.py")) == ["own.py"]


def test_a_folder_of_ones_own_goes_first_and_nothing_of_it_stays(tmp_path):
    import configs.default as ours

    folder = tmp_path / "configs"
    folder.mkdir()
    (tmp_path / "steps_beside.py").write_text("STEPS = 7\n")
    (folder / "default.py").write_text(
        "from steps_beside import STEPS\nfrom configs.demo import get_config as demo\n"
        "def get_config():\n    c = demo()\n    c.train.steps = STEPS\n    return c\n"
    )
    (folder / "demo.py").write_text("from configs.leak import get_config\n")
    (folder / "leak.py").write_text((ROOT / "configs/default.py").read_text())  # theirs, of our shape
    (folder / "mine.py").write_text("from configs import default\nget_config = default.get_config\n")
    assert load_config(str(folder / "mine.py")).train.steps == 7
    assert sys.modules["configs.default"] is ours
    assert str(tmp_path) not in sys.path
    del sys.modules["steps_beside"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("configs/demo.py", r"no such configuration file; --config=demo is in the package"),
        ("papre", r"did you mean 'paper'\?"),
        ("nowhere/x.py", r"there are cofett, default, demo"),
    ],
)
def test_what_is_not_there_is_said(name, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        load_config(name)


def test_wheel_and_sdist_are_whole(tmp_path):
    """Both as `pip` would build them; the wheel, unpacked, runs away from any clone."""
    pytest.importorskip("hatchling", reason="builds the package; comes with the extra `test`")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", tmp_path], cwd=ROOT, check=True,
                   capture_output=True)  # fmt: skip
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    inside = {str(path.relative_to(tmp_path / "installed")) for path in (tmp_path / "installed").rglob("*")}
    ours = {str(path.relative_to(ROOT)) for path in (ROOT / "eeg2text_jax").rglob("*.py")}
    assert ours | {"eeg2text_jax/py.typed", "eeg2text_jax/instrument/auditing/report.css"} <= inside
    assert {f"eeg2text_jax/configs/{path.name}" for path in (ROOT / "configs").glob("*.py")} <= inside
    assert not {name.partition("/")[0] for name in inside} & {"configs", "tests", "tools"}
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert ours | {"configs/default.py", "tools/test.sh", "tests/conftest.py", "docs/field.md", "LICENSE"} <= names
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    code = "import eeg2text_jax.training.configuration as c; c.load_config('demo'); print(c.__file__)"
    for command in (["-c", code], ["-m", "eeg2text_jax", "configs"]):
        ran = subprocess.run([sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True,
                             check=True)  # fmt: skip
        assert str(tmp_path / "installed") in ran.stdout or "paper" in ran.stdout
