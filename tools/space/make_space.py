"""Writes a folder that runs as a Space of Hugging Face: `python tools/space/make_space.py OUT`, an empty or new folder.

It holds `app.py`, `requirements.txt` made from the dependencies of the package and its extra `app`, the Space's
`README.md`, and the package with its configurations and the table of published outputs.
"""

import re
import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = """---
title: EEG-to-text, judged
sdk: gradio
sdk_version: {version}
app_file: app.py
license: apache-2.0
---

Does a model that decodes text from brain recordings use the recordings? Drop its outputs and those of a control.
"""


def requirements() -> list[str]:
    """The dependencies of the package, and those of its extra `app` with the extras that it names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
    found, waiting = list(project["dependencies"]), ["app"]
    while waiting:
        for line in project["optional-dependencies"][waiting.pop()]:
            if own := re.fullmatch(r"eeg2text_jax\[(.*)\]", line):
                waiting += own[1].split(",")
            else:
                found.append(line)
    return list(dict.fromkeys(found))


def make(out: Path, gradio: str = "6.31.0") -> None:
    """Fill a folder. Raises FileExistsError where it is not empty."""
    if out.is_dir() and any(out.iterdir()):
        raise FileExistsError(f"{out} is not empty")
    out.mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / "eeg2text_jax", out / "eeg2text_jax", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "configs", out / "eeg2text_jax/configs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "docs/field.md", out / "eeg2text_jax/instrument/app/field.md")
    shutil.copy(ROOT / "tools/space/app.py", out)
    (out / "requirements.txt").write_text("\n".join(requirements()) + "\n", encoding="utf8")
    (out / "README.md").write_text(README.format(version=gradio), encoding="utf8")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
