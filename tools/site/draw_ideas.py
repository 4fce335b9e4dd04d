"""Draws the three pictures of ideas: docs/grid.svg, docs/content.svg and docs/clock.svg.

python tools/site/draw_ideas.py [FOLDER], docs by default.
"""

import itertools
import random
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
INK, EEG, NOISE, PALE = "#334", "#4477aa", "#aaaaaa", "#e8f0f8"
KINDS = ("#4477aa", "#cc6677", "#228833")


def text(x: float, y: float, words: str, size: int = 14, anchor: str = "start", weight: str = "normal") -> str:
    style = f'font-size="{size}" text-anchor="{anchor}" font-weight="{weight}"'
    return f'<text x="{x:g}" y="{y:g}" {style}>{words}</text>'


def box(x: float, y: float, width: float, height: float, fill: str, more: str = "") -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" {more}/>'


def picture(width: int, height: int, title: str, *parts: str) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img"'
    head += f' font-family="Helvetica, Arial, sans-serif" fill="{INK}">\n<title>{title}</title>'
    return "\n".join([head, box(0, 0, width, height, "white"), *parts, "</svg>\n"])


def grid() -> str:
    """Arms trained on EEG or on noise, decoded with either: what each cell tells."""
    cells = (
        ("the claim", "the same model, no recording"),
        ("given what it never saw", "what training reaches without EEG"),
    )
    parts = [text(180, 24, "decoded with EEG", weight="bold"), text(410, 24, "decoded with noise", weight="bold")]
    for row, (name, line) in enumerate(zip(("EEG", "noise"), cells, strict=True)):
        y = 40 + 74 * row
        parts.append(text(10, y + 36, f"trained on {name}", weight="bold"))
        for column, words in enumerate(line):
            fill = "#cfe3f5" if row == column == 0 else PALE
            parts.append(box(170 + 230 * column, y, 222, 62, fill, 'rx="6"'))
            parts.append(text(281 + 230 * column, y + 27, words, 13, "middle"))
            parts.append(text(281 + 230 * column, y + 48, "free-running | teacher-forced", 12, "middle"))
    foot = "Each cell is scored on the same sentences; each row may have several seeds."
    return picture(640, 212, "The grid of a run", *parts, text(10, 203, foot, 13))


def example_figures() -> dict[str, tuple[float, float]]:
    """Return for both example files the score, and the score against other sentences."""
    sys.path.insert(0, str(ROOT))
    from eeg2text_jax import audit

    folder = ROOT / "eeg2text_jax/commands/example_files"
    result = audit(folder / "eeg.csv", control=folder / "noise.csv")
    contents = (one.content for one in result.conditions)
    return {name: (one.scores[0], one.nulls[0]) for name, one in zip(("EEG", "noise"), contents, strict=True)}


def content() -> str:
    """Content is the score minus the score against others; it must be larger with EEG than with the control."""
    parts = []
    for row, (name, (own, others)) in enumerate(example_figures().items()):
        y, color, scale = 34 + 92 * row, EEG if name == "EEG" else NOISE, 20
        parts.append(text(10, y + 30, f"outputs for {name}", weight="bold"))
        for offset, points, fill, what in ((0, own, color, "own sentence"), (28, others, PALE, "other sentences")):
            width = scale * points
            parts.append(box(160, y + offset, width, 22, fill, f'stroke="{color}"'))
            parts.append(text(168 + width, y + offset + 16, f"{points:.1f} {what}", 13))
        parts.append(box(160 + scale * others, y + 58, scale * (own - others), 4, "#cc6677"))
        parts.append(text(160, y + 76, f"content {own - others:+.1f}", 14, "start", "bold"))
    foot = "Score: points of words shared with a sentence. The verdict compares the two contents."
    return picture(640, 246, "Content is own minus others", *parts, text(10, 236, foot, 13))


def clock() -> str:
    """A slow drift tells the kind of a sentence in blocks, and does not in random order."""
    rng, parts = random.Random(0), []
    for row, (name, kinds) in enumerate((("in blocks", [0] * 8 + [1] * 8 + [2] * 8), ("in random order", None))):
        y = 20 + 98 * row
        kinds = kinds or rng.sample([0, 1, 2] * 8, 24)
        parts.append(text(10, y + 40, name, weight="bold"))
        for place, kind in enumerate(kinds):
            parts.append(box(150 + 20 * place, y + 24, 17, 24, KINDS[kind]))
        points = " ".join(f"{150 + 20 * i},{y + 18 - 0.7 * i + rng.uniform(-1.5, 1.5):.1f}" for i in range(25))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{INK}" stroke-width="1.5"/>')
        same = sum(a == b for a, b in itertools.pairwise(kinds))
        parts.append(text(150, y + 68, f"the next sentence is of the same kind in {same} of 23 cases", 13))
    legend = "Boxes: sentences of three kinds, in the order in which they are read. Line: drift of an electrode."
    return picture(640, 216, "Time as a confound", *parts, text(10, 207, legend, 13))


PICTURES = (grid, content, clock)


def main(folder: Path) -> None:
    for draw in PICTURES:
        (folder / f"{draw.__name__}.svg").write_text(draw(), encoding="utf8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs")
