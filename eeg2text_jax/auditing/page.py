"""Self-contained HTML pages: Markdown, tables that become cards on a phone, embedded images."""

import base64
import dataclasses
import html
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from etils import epath

from eeg2text_jax.files import write_text

RULE = re.compile(r"\|(\s*:?-+:?\s*\|)+")
ESCAPED = re.compile(r"\\([\\`*_\[\]|#~<>])")
NAMES = {"eeg": "EEG", "fmri": "fMRI"}
# "EEG" as a word: the recording or the condition in a sentence, but not a part of an image, a path or an option.
_EEG = re.compile(r"(?<![\w+/])EEG(?![\w+/=])|(?<![\w+/.=-])eeg(?![\w+/=]|\.\w)")


def said(text: Any, recording: str) -> Any:
    """Replace EEG by the name of the recording in a text, or in all texts of lists and dictionaries.

    A text that is exactly "eeg" is kept: it is the name of a condition for programs.
    """
    if recording not in NAMES or recording == "eeg":
        return text
    if isinstance(text, dict):
        return {name: value if name == "examples" else said(value, recording) for name, value in text.items()}
    if isinstance(text, list | tuple):
        return type(text)(said(value, recording) for value in text)
    return _EEG.sub(NAMES[recording], text) if isinstance(text, str) and text != "eeg" else text


def markdown_html(text: str) -> str:
    """Convert Markdown blocks, separated by blank lines, to HTML; a block whose lines begin with `|` is a table."""
    blocks = [block.strip().split("\n") for block in re.split(r"\n\s*\n", text) if block.strip()]
    return "".join(_markdown_table(block) if block[0].startswith("|") else _text(block) for block in blocks)


def _text(lines: Sequence[str]) -> str:
    heading = re.match(r"#+ (.*)", lines[0])
    if heading and len(lines) == 1:
        return f"<h3>{_inline(heading[1])}</h3>"
    return f"<p>{_inline(' '.join(lines))}</p>"


def _markdown_table(lines: Sequence[str]) -> str:
    heads, *rows = [_cells(line) for line in lines if not RULE.fullmatch(line.strip())]
    return _html_table(heads, rows)


def _cells(line: str) -> list[str]:
    return [_inline(cell.strip()) for cell in re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))]


def _inline(text: str) -> str:
    """Convert bold, underline and escapes; entities are decoded first, so that everything is escaped once."""
    text = re.sub(r"</?u>", lambda tag: "\x01" if tag[0] == "<u>" else "\x02", text)
    pieces = re.split(r"(?<!\\)\*\*", html.unescape(text))
    pieces = [html.escape(ESCAPED.sub(r"\1", piece)) for piece in pieces]
    marked = "".join(f"<b>{piece}</b>" if index % 2 else piece for index, piece in enumerate(pieces))
    return marked.replace("\x01", "<u>").replace("\x02", "</u>")


STYLE_SHEET = Path(__file__).with_name("report.css")


@dataclasses.dataclass(frozen=True)
class Section:
    """A further section of the report: Markdown (pipe tables, paragraphs) and PNG or SVG files."""

    title: str
    markdown: str = ""
    images: Sequence[str | os.PathLike[str]] = ()


def write_page(path: str | os.PathLike[str], title: str, parts: Iterable[str]) -> None:
    """Write a self-contained HTML page, atomically."""
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE_SHEET.read_text(encoding='utf8')}</style></head>"
        f"<body><main><h1>{html.escape(title)}</h1>{''.join(parts)}</main></body></html>\n"
    )
    write_text(path, page)


def section_part(section: Section) -> str:
    images = "".join(f"<figure>{_image_file(epath.Path(path))}</figure>" for path in section.images)
    return f'<h2>{html.escape(section.title)}</h2>{markdown_html(section.markdown)}<div class="figures">{images}</div>'


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return _html_table(list(map(html.escape, headings)), [list(map(html.escape, row)) for row in rows])


def _html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an HTML table; every cell carries its heading, because a phone shows each row as a card."""
    labels = [re.sub(r"<[^>]*>", "", head) for head in heads]
    body = "".join(
        "<tr>"
        + "".join(f'<td data-label="{label}">{cell}</td>' for label, cell in zip(labels, row, strict=True))
        + "</tr>"
        for row in rows
    )
    head = "".join(f"<th>{cell}</th>" for cell in heads)
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def image(svg: str, alt: str) -> str:
    return _embedded(svg.encode(), "svg+xml", alt)


def _image_file(path: epath.Path) -> str:
    return _embedded(path.read_bytes(), {".svg": "svg+xml", ".png": "png"}[path.suffix], path.stem)


def _embedded(data: bytes, kind: str, alt: str) -> str:
    source = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    return f'<img alt="{html.escape(alt)}" src="{source}">'
