"""Draws the plan of the package from its imports.

python tools/site/draw_layers.py [OUT.svg], docs/layers.svg by default.

A box is a folder or a module of the top level, in the order of `[tool.importlinter]`; an arc is an import between two
of them. Arcs on the right run downwards; one on the left, in red, would run up.
"""

import sys
import tomllib
from pathlib import Path

import grimp
import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Arc

ROOT = Path(__file__).parents[2]
PACKAGE = "eeg2text_jax"


def rows() -> list[list[str]]:
    """The layers from the top; what stands side by side may not import each other."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    return [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]


def size(name: str) -> tuple[int, int]:
    """Modules and lines of a folder or module."""
    folder = ROOT / PACKAGE / name
    paths = list(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    modules = [path for path in paths if path.name != "__init__.py"]
    return len(modules), sum(len(path.read_text().splitlines()) for path in paths)


def arrows() -> set[tuple[str, str]]:
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=True, cache_dir=None)
    found = set()
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            ends = tuple((f"{name}.".split(".")[1]) for name in (module, imported))
            if all(ends) and ends[0] != ends[1]:
                found.add(ends)
    return found


def main(out: Path) -> None:
    layers = rows()
    height = {name: -number for number, layer in enumerate(layers) for name in layer}
    matplotlib.rcParams["svg.hashsalt"] = "layers"  # the same picture, byte for byte
    figure = Figure(figsize=(9, 0.36 * len(layers)))
    axes = figure.subplots()
    for layer in layers:
        texts = []
        for name in layer:
            modules, lines = size(name)
            texts.append(f"{name}  {modules} × {lines // max(modules, 1)}" if modules > 1 else f"{name}  {lines}")
        box = {"boxstyle": "round", "facecolor": "#e8f0f8", "edgecolor": "#345"}
        axes.text(0, height[layer[0]], "   |   ".join(texts), ha="right", va="center", fontsize=8, bbox=box)
    for importer, imported in sorted(arrows()):
        top, bottom = height[importer], height[imported]
        down = top > bottom
        reach = abs(top - bottom)
        start, end = (270, 90) if down else (90, 270)
        middle = (0.3 if down else -4.5, (top + bottom) / 2)
        colour = "#4477aa" if down else "#cc0000"
        axes.add_patch(Arc(middle, reach * 0.45, reach, theta1=start, theta2=end, color=colour, lw=0.8, alpha=0.7))
        axes.plot(middle[0], bottom, marker="<", color=colour, markersize=3)
    axes.set_xlim(-4.5, 5.5)
    axes.set_ylim(-len(layers), 1)
    axes.axis("off")
    figure.savefig(out, bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/layers.svg")
