"""Self-contained HTML pages from Markdown, tables, images and folded sections; tables become cards on a phone."""

import base64
import dataclasses
import html
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from etils import epath

from eeg2text_jax.files import write_text

RULE = re.compile(r"\|(\s*:?-+:?\s*\|)+")  # the line below the headings of a Markdown table
ESCAPED = re.compile(r"\\([\\`*_\[\]|#~<>])")
STYLE_SHEET = Path(__file__).with_name("report.css")


def markdown_html(text: str) -> str:
    """Convert Markdown to HTML: pipe tables, paragraphs, bold and underlined text."""
    blocks = [block.strip().split("\n") for block in re.split(r"\n\s*\n", text) if block.strip()]
    return "".join(map(_block, blocks))


def _block(lines: Sequence[str]) -> str:
    if lines[0].startswith("|"):
        cells = [line.strip().removeprefix("|").removesuffix("|") for line in lines if not RULE.fullmatch(line.strip())]
        heads, *rows = [[_inline(cell.strip()) for cell in re.split(r"(?<!\\)\|", line)] for line in cells]
        return _html_table(heads, rows)
    return f"<p>{_inline(' '.join(lines))}</p>"


def _inline(text: str) -> str:
    """Convert bold, underline, escapes to HTML; entities are decoded first, so that all text is escaped once."""
    text = re.sub(r"</?u>", lambda tag: "\x01" if tag[0] == "<u>" else "\x02", text)
    pieces = re.split(r"(?<!\\)\*\*", html.unescape(text))
    pieces = [html.escape(ESCAPED.sub(r"\1", piece)) for piece in pieces]
    marked = "".join(f"<b>{piece}</b>" if index % 2 else piece for index, piece in enumerate(pieces))
    return marked.replace("\x01", "<u>").replace("\x02", "</u>")


@dataclasses.dataclass(frozen=True)
class Section:
    """A section that the caller adds to the report: title, Markdown and images."""

    title: str
    markdown: str = ""
    images: Sequence[str | os.PathLike[str]] = ()  # PNG or SVG files


def write_page(path: str | os.PathLike[str], title: str, parts: Iterable[str]) -> None:
    """Write an HTML page atomically: a title, then `parts`, which are HTML."""
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE_SHEET.read_text(encoding='utf8')}</style></head>"
        f"<body><main><h1>{html.escape(title)}</h1>{''.join(parts)}</main></body></html>\n"
    )
    write_text(path, page)


def folded(title: str, body: str, *, name: str = "") -> str:
    """Return a section in HTML that opens when its title is clicked; "" if its body is empty."""
    return f'<details class="part {name}"><summary>{html.escape(title)}</summary>{body}</details>' if body else ""


def section_part(section: Section) -> str:
    """Return a section of the report in HTML, with its images embedded."""
    kinds = {".svg": "svg+xml", ".png": "png"}
    paths = map(epath.Path, section.images)
    images = "".join(f"<figure>{image(p.read_bytes(), p.stem, kinds[p.suffix])}</figure>" for p in paths)
    return folded(section.title, f'{markdown_html(section.markdown)}<div class="figures">{images}</div>')


def bullets(lines: Iterable[str]) -> str:
    """Return sentences as an HTML list; "" if there are none. First words get a capital, names before a colon none."""
    said = (re.sub("^[a-z]+ ", lambda word: word[0].capitalize(), line) for line in lines)
    items = "".join(f"<li>{html.escape(line)}</li>" for line in said)
    return f"<ul>{items}</ul>" if items else ""


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return headings and rows of plain text as an HTML table."""
    return _html_table(list(map(html.escape, headings)), [list(map(html.escape, row)) for row in rows])


def _html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an HTML table from HTML cells; every cell repeats its heading, as a phone shows each row as a card."""
    labels = [re.sub(r"<[^>]*>", "", head) for head in heads]
    cells = ((f'<td data-label="{a}">{cell}</td>' for a, cell in zip(labels, row, strict=True)) for row in rows)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
    head = "".join(f"<th>{cell}</th>" for cell in heads)
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def image(data: bytes, alt: str, kind: str = "svg+xml") -> str:
    """Return an embedded image in HTML; `alt` is its text for readers who cannot see it."""
    source = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    return f'<img alt="{html.escape(alt)}" src="{source}">'
