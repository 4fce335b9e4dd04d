"""Draws docs/verdicts.png, README's picture: the heads of the demonstration's two reports, side by side.

    bash tools/demo.sh && python tools/site/verdicts_picture.py runs/demo

Needs Chromium (`chromium` on the path).
"""

import argparse
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

OUT = Path(__file__).parents[2] / "docs/verdicts.png"
HEAD = (980, 957)  # width and height of a report's head, in pixels
SHOWN = (640, 625)  # of its image


def photographed(page: Path, folder: Path) -> Image.Image:
    shot = folder / "shot.png"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={HEAD[0]},{HEAD[1]}"]
    subprocess.run(["chromium", *options, f"--screenshot={shot}", page.resolve().as_uri()], check=True)
    with Image.open(shot) as image:
        return image.convert("RGB").resize(SHOWN)


def draw(runs: Path, out: Path) -> None:
    picture = Image.new("RGB", (2 * SHOWN[0], SHOWN[1]), "white")
    with tempfile.TemporaryDirectory() as folder:
        for column, name in enumerate(("planted", "null")):
            picture.paste(photographed(runs / name / "report.html", Path(folder)), (column * SHOWN[0], 0))
    picture.quantize(64).save(out, optimize=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    draw(parser.parse_args().runs, OUT)
