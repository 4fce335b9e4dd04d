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
PAGE, SHOWN, SCALE = (980, 1160), (640, 760), 0.65  # width and height in pixels: of a report's head, and of its image
FRAME = (
    '<iframe src="{source}" style="width:{0}px;height:{1}px;border:0;transform:scale({scale});transform-origin:0 0">'
)


def heads(reports: list[Path]) -> str:
    """Return a page with the heads of reports side by side."""
    cells = (FRAME.format(*PAGE, source=report.resolve().as_uri(), scale=SCALE) for report in reports)
    box = f"display:inline-block;width:{SHOWN[0]}px;height:{SHOWN[1]}px;overflow:hidden;vertical-align:top"
    boxes = "".join(f'<div style="{box}">{cell}</div>' for cell in cells)
    return f'<body style="margin:0;white-space:nowrap;background:white">{boxes}'


def draw(runs: Path, out: Path) -> None:
    """Photograph `planted/report.html` and `null/report.html` of a demonstration."""
    with tempfile.TemporaryDirectory() as folder:
        page, shot = Path(folder, "page.html"), Path(folder, "shot.png")
        page.write_text(heads([runs / name / "report.html" for name in ("planted", "null")]), encoding="utf8")
        size = f"--window-size={2 * SHOWN[0]},{SHOWN[1]}"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=4000"]
        subprocess.run(["chromium", *options, size, f"--screenshot={shot}", page.as_uri()], check=True)
        Image.open(shot).convert("RGB").quantize(64).save(out, optimize=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    draw(parser.parse_args().runs, OUT)
