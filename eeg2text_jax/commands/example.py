"""`eeg2text example [FOLDER]`: two files of decoded text to try the audit on, and their verdict.

The files hold made-up decodes of made-up sentences: 50 sentences, four subjects, 200 rows each.
"""

import argparse
from pathlib import Path

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import write_text
from eeg2text_jax.commands import audit

ABOUT = "Two files of decoded text to try the audit on, and their verdict."
FILES = Path(__file__).parent / "example_files"


def main(argv: list[str]) -> int:
    """Copy the example files to a folder and audit them; returns the exit status of the audit."""
    parser = argparse.ArgumentParser(prog="eeg2text example", description=ABOUT)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("example"), help="where to put them (example)")
    folder = parser.parse_args(argv).folder
    paths = {name: folder / f"{name}.csv" for name in ("eeg", "noise")}
    for path in paths.values():
        text = (FILES / path.name).read_text(encoding="utf8")
        if path.exists() and path.read_text(encoding="utf8") != text:
            raise UserError(f"{path}: is not the example file of this version; name another folder, or move it away.")
        folder.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    options = ["--eeg", str(paths["eeg"]), "--control", str(paths["noise"]), f"--html={folder / 'report.html'}"]
    print(f"$ eeg2text audit {' '.join(options)}", flush=True)
    return audit.main(options)
