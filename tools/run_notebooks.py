"""Runs the notebooks of docs/notebooks, each in a process and an empty folder of its own.

python tools/run_notebooks.py [NAME ...]             # without Jupyter; all take less than 4 minutes on two cores
python tools/run_notebooks.py --store [NAME ...]     # with nbclient and ipykernel: keeps outputs and plots in the files
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "site"))

from site_pages import NOTEBOOKS, code_of, digest_of_code

LIMIT = 240.0  # seconds for all of them


def main() -> int:
    begun, before = time.monotonic(), 0.0
    names = [name for name in sys.argv[1:] if name != "--store"]
    for path in NOTEBOOKS:
        if names and path.stem not in names:
            continue
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            (store if "--store" in sys.argv else run)(path, folder)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = used.ru_utime + used.ru_stime
        print(f"--- {path.stem}: {time.monotonic() - start:.0f} s, {spent - before:.0f} s of CPU", flush=True)
        before = spent
    taken = time.monotonic() - begun
    print(f"all: {taken:.0f} s")
    return int(taken > LIMIT and not names and "--store" not in sys.argv)


def run(path: Path, folder: str) -> None:
    script = Path(folder) / f"{path.stem}.py"
    script.write_text("\n\n".join(code_of(path)), encoding="utf8")
    subprocess.run([sys.executable, script.name], cwd=folder, check=True)


def store(path: Path, folder: str) -> None:
    """Run a notebook in a kernel and write it with its outputs, and with the digest of the code that gave them."""
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(path, 4)
    NotebookClient(book, timeout=1800, resources={"metadata": {"path": folder}}).execute()
    for cell in book.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = joined([output for output in cell.outputs if output.get("name") != "stderr"])
    book.metadata["eeg2text"] = {"outputs_of": digest_of_code(path)}
    book.metadata.pop("language_info", None)
    path.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf8")


def joined(outputs: list[Any]) -> list[Any]:
    """Outputs with lines that were printed one after the other as one text."""
    found: list[Any] = []
    for output in outputs:
        if found and output.output_type == found[-1].output_type == "stream":
            found[-1].text += output.text
        else:
            found.append(output)
    return found


if __name__ == "__main__":
    sys.exit(main())
