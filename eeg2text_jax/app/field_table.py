"""The table of published outputs that travels with the package: the one of `docs/field.md`."""

from pathlib import Path

COLUMNS = ("set", "verdict", "input", "mode, file says", "rows", "sentences", "BLEU-1", "content", "p", "difference")


def field_page() -> Path:
    """Where the page is: beside this module in a wheel, in `docs` of a clone."""
    here = Path(__file__).parent
    return next((place for place in (here / "field.md", here.parents[1] / "docs/field.md") if place.is_file()), here)


def field_table(page: str) -> tuple[list[str], list[list[str | float | None]]]:
    """Headings and rows of the first table of a page that has sets and verdicts; figures as numbers."""
    lines = (line.strip().removeprefix("|").removesuffix("|") for line in page.splitlines() if line.startswith("|"))
    rows = [[cell.strip().strip("`*") for cell in line.split("|")] for line in lines]
    start = next((i for i, row in enumerate(rows) if {"set", "verdict"} <= set(row)), None)
    if start is None:
        return [], []
    head = rows[start]
    chosen = [head.index(name) for name in COLUMNS if name in head]
    body = []
    for row in rows[start + 2 :]:
        if len(row) != len(head) or {"set", "verdict"} <= set(row):
            break
        body.append([figure(row[i]) for i in chosen])
    return ["p, at most" if head[i] == "p" else head[i] for i in chosen], body


def figure(cell: str) -> str | float | None:
    """A cell as a number where it is one or a bound ("< 0.001"), None where there is none."""
    try:
        return float(cell.removeprefix("< "))
    except ValueError:
        return None if cell in ("", "–") else cell
