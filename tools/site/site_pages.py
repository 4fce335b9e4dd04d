"""Pages of the documentation that are made: the start page, the configuration, the gallery, and one for each notebook.

A hook of mkdocs (`mkdocs.yml`); `python tools/site/site_pages.py` prints the configuration's page.
"""

import ast
import base64
import hashlib
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
HEAD = ["| field | default | meaning |", "| --- | --- | --- |"]
_FIELD = re.compile(r"^    c\.([\w.]+) = (.*?)(?:  # (.*))?$")

# Where there is room, the name of a field is on one line.
WHOLE_NAMES = "<style>@media (min-width: 45em) {.md-typeset td:first-child code {white-space: nowrap}}</style>"


def configuration_page() -> str:
    """A table of every section of configs/default.py: field, default, what it means."""
    lines = (ROOT / "configs/default.py").read_text(encoding="utf8").splitlines()
    about = (
        "After this page you can change any field of a run: `--config.SECTION.FIELD=VALUE`. A misspelt field gets the "
        "nearest name. `eeg2text configs` lists the bundled configurations, `eeg2text configs copy NAME` copies one "
        "for editing, `--dry-run` shows what would be done, and `eeg2text completion bash` (or `zsh`) prints a script "
        "that completes names. The page is made from `configs/default.py`, the only home of defaults."
    )
    out = ["# Configuration", "", about, "", WHOLE_NAMES, ""]
    said: list[str] = []
    unclosed = 0  # brackets
    for line in lines:
        if unclosed:  # a value that goes on over several lines
            unclosed += _opened(line)
            continue
        if line.strip().startswith("#"):
            said.append(line.strip().removeprefix("#").strip())
            continue
        match = _FIELD.match(line)
        if match is None:
            said = [] if not line.strip() else said
            continue
        name, value, comment = match.groups()
        meaning = " ".join([*said, comment or ""]).strip()
        said = []
        if value == "ConfigDict()":
            sentence = f"{meaning[:1].upper()}{meaning[1:].removesuffix('.')}."
            out += ["", f"## {name}", "", *([sentence, ""] if meaning else []), *HEAD]
            continue
        if unclosed := _opened(value):
            value += " ..."
        if "." not in name and not out[-1].startswith("|"):
            out += HEAD
        cells = (f"`{name}`", f"`{value}`", meaning)
        out.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(out) + "\n"


def _opened(code: str) -> int:
    """Brackets that a line opens, less those that it closes."""
    code = code.partition("  #")[0]
    return sum(code.count(bracket) for bracket in "([{") - sum(code.count(bracket) for bracket in ")]}")


def notebook_page(path: Path) -> str:
    """A notebook as Markdown: its texts, its code, and the outputs that tools/run_notebooks.py has stored."""
    cells = json.loads(path.read_text(encoding="utf8"))["cells"]
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        parts += [_shown(output) for output in cell.get("outputs", [])]
    return "\n\n".join(parts) + f"\n\n[This page as a notebook]({path.name})\n"


def _shown(output: dict[str, Any]) -> str:
    """An output of a cell as Markdown: a picture, a table, or text."""
    data = {kind: "".join(value) for kind, value in output.get("data", {}).items()}
    if "image/svg+xml" in data:
        encoded = base64.b64encode(data["image/svg+xml"].encode()).decode()
        return f"![plot](data:image/svg+xml;base64,{encoded})"
    if "image/png" in data:
        return f"![plot](data:image/png;base64,{data['image/png'].strip()})"
    if "text/html" in data:
        return f'<div class="output">{data["text/html"]}</div>'
    text = data.get("text/plain", "".join(output.get("text", ""))).rstrip()
    return f"```text\n{text}\n```"


def digest_of_code(path: Path) -> str:
    """A hash of a notebook's code, by which stored outputs are known to be those of the code beside them."""
    return hashlib.sha256("\n\n".join(code_of(path)).encode()).hexdigest()[:16]


def code_of(path: Path) -> list[str]:
    """The code cells of a notebook, each a piece of Python."""
    cells = json.loads(path.read_text(encoding="utf8"))["cells"]
    pieces = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    for piece in pieces:
        ast.parse(piece)
    return pieces


def top_page(name: str) -> str:
    """A page of the top folder, with the links that it has on the site: README.md is the start page."""
    text = (ROOT / name).read_text(encoding="utf8")
    return text.replace("](docs/", "](").replace("](CONTRIBUTING.md)", "](contributing.md)")


def on_files(files: Any, config: Any) -> Any:
    """mkdocs calls this with the files that it has found."""
    sys.path.insert(0, str(Path(__file__).parent))
    from gallery import make
    from mkdocs.structure.files import File

    pages = {"index.md": top_page("README.md"), "contributing.md": top_page("CONTRIBUTING.md")}
    pages |= {"changelog.md": top_page("CHANGELOG.md"), "configuration.md": configuration_page()}
    pages |= {f"notebooks/{path.stem}.md": notebook_page(path) for path in NOTEBOOKS}
    with tempfile.TemporaryDirectory() as folder:
        pages["gallery.md"] = make(Path(folder))
        pages |= {f"gallery/{path.name}": path.read_text(encoding="utf8") for path in sorted(Path(folder).iterdir())}
    for place, content in pages.items():
        files.append(File.generated(config, place, content=content))
    return files


if __name__ == "__main__":
    print(configuration_page())
