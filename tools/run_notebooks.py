"""Runs the notebooks of docs/notebooks, each in a process and an empty folder of its own, without Jupyter.

python tools/run_notebooks.py [NAME ...]     # all of them take less than 4 minutes on two cores
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from site_pages import NOTEBOOKS, code_of

LIMIT = 240.0  # seconds for all of them


def main() -> int:
    begun, before, names = time.monotonic(), 0.0, sys.argv[1:]
    for path in NOTEBOOKS:
        if names and path.stem not in names:
            continue
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / f"{path.stem}.py"
            script.write_text("\n\n".join(code_of(path)), encoding="utf8")
            subprocess.run([sys.executable, script.name], cwd=folder, check=True)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = used.ru_utime + used.ru_stime
        print(f"--- {path.stem}: {time.monotonic() - start:.0f} s, {spent - before:.0f} s of CPU", flush=True)
        before = spent
    taken = time.monotonic() - begun
    print(f"all: {taken:.0f} s")
    return int(taken > LIMIT and not names)


if __name__ == "__main__":
    sys.exit(main())
