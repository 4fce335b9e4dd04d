"""The little Markdown that our own tables are written in, as HTML: pipe tables, paragraphs, bold, underline."""

import html
import re
from collections.abc import Sequence

RULE = re.compile(r"\|(\s*:?-+:?\s*\|)+")
ESCAPED = re.compile(r"\\([\\`*_\[\]|#~<>])")


def markdown_html(text: str) -> str:
    """HTML of blocks separated by blank lines; a block of lines that begin with `|` is a table."""
    blocks = [block.strip().split("\n") for block in re.split(r"\n\s*\n", text) if block.strip()]
    return "".join(_table(block) if block[0].startswith("|") else _text(block) for block in blocks)


def _text(lines: Sequence[str]) -> str:
    heading = re.match(r"#+ (.*)", lines[0])
    if heading and len(lines) == 1:
        return f"<h3>{_inline(heading[1])}</h3>"
    return f"<p>{_inline(' '.join(lines))}</p>"


def _table(lines: Sequence[str]) -> str:
    heads, *rows = [_cells(line) for line in lines if not RULE.fullmatch(line.strip())]
    labels = [re.sub(r"<[^>]*>", "", head) for head in heads]
    head = "".join(f"<th>{cell}</th>" for cell in heads)
    body = "".join(
        "<tr>" + "".join(f'<td data-label="{a}">{b}</td>' for a, b in zip(labels, row, strict=False)) + "</tr>"
        for row in rows
    )
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cells(line: str) -> list[str]:
    return [_inline(cell.strip()) for cell in re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))]


def _inline(text: str) -> str:
    """Bold, underline and escapes; entities are undone first, so that everything else is escaped once."""
    text = re.sub(r"</?u>", lambda tag: "\x01" if tag[0] == "<u>" else "\x02", text)
    pieces = re.split(r"(?<!\\)\*\*", html.unescape(text))
    pieces = [html.escape(ESCAPED.sub(r"\1", piece)) for piece in pieces]
    marked = "".join(f"<b>{piece}</b>" if index % 2 else piece for index, piece in enumerate(pieces))
    return marked.replace("\x01", "<u>").replace("\x02", "</u>")
