"""Reader of layout J, foreign JSON with usual names: an object per line, a list of objects, or lists by name."""

import functools
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from etils import epath

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.column_names import (
    ABOUT_NAMES,
    PAIRS,
    PREDICTION_NAMES,
    REFERENCE_NAMES,
    is_header,
    known_names,
    normalize_names,
)
from eeg2text_jax.predictions.columns import (
    SEVERAL,
    Columns,
    describe_columns,
    foreign_row,
    has_several_lists,
    named_columns,
    stated_columns,
    with_groups,
)
from eeg2text_jax.predictions.file import DECODER, parse_object, refuse_surrogates
from eeg2text_jax.predictions.foreign import ForeignRow
from eeg2text_jax.predictions.packed import Lines

Item = tuple[int, dict[str, Any]]  # number of the line or of the item in a list, from 1; object of a sample


def read_json(
    lines: Lines, columns: Sequence[str] | None, *, by_line: bool, groups: Sequence[str] = ()
) -> tuple[Iterator[ForeignRow], Callable[..., str]]:
    """Return the samples, and a function that describes the layout after they were read, see `describe_columns`.

    `by_line`: an object per line, else the file is one JSON text. Raises UserError (for later items only when they are
    read) if an item is no object, names are not recognised or differ between items, or a text is not text.
    """
    items = items_by_line(lines) if by_line else iter(())
    _, row = next(items, (0, {}))
    has_all = is_lists(row) or is_by_key(row) or any(map(is_objects, row.values()))  # one object has all samples
    if not by_line or (has_all and next(items, None) is None):
        (items, kind), unit = items_of_text(lines), "item"
    else:
        items, kind, unit = items_by_line(lines), "J (JSON lines", "line"
    items = ((number, without_chat(row)) for number, row in items)
    number, row = next(items, (0, {}))
    names = normalize_names(row)
    if not columns:
        refuse_texts_by_id(row, lines.path)
    if len(set(names)) < len(names):
        raise UserError(f"{lines.path}, {unit} {number}: two names differ only in case or spaces; rename one of them.")
    keys = list(row)
    try:
        stated = stated_columns(columns, names, len(names), lines.path) if columns else None
        chosen = with_groups(stated or named_columns(names, lines.path, keys), names, groups)
    except UserError:
        refuse_chat(row, f"{lines.path}, {unit} {number}")
        raise
    description = functools.partial(describe_columns, chosen, keys, len(keys), kind)
    return rows_of(itertools.chain([(number, row)], items), keys, chosen, unit, lines.path), description


def rows_of(
    items: Iterable[Item], keys: list[str], columns: Columns, unit: str, path: epath.Path
) -> Iterator[ForeignRow]:
    texts = {columns.reference, *columns.predictions.values()}
    used = sorted(columns.used())
    for number, row in items:
        fields = [""] * len(keys)
        for index in used:
            if keys[index] not in row:
                raise UserError(
                    f"{path}, {unit} {number}: has no {keys[index]!r}, but the first {unit} has it; add the name, or "
                    f"remove the {unit}."
                )
            value = row[keys[index]]
            fields[index] = text_of(value, keys[index], f"{path}, {unit} {number}") if index in texts else str(value)
        for index in columns.others.values():
            fields[index] = value if isinstance(value := row.get(keys[index]), str) else ""
        yield foreign_row(number, fields, columns, path, unit)


def text_of(value: Any, name: str, where: str) -> str:
    """Return a text unchanged, a list of texts as JSON. Raises UserError for other values; `where` names the row."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str):
        shown = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list) and has_several_lists(value):
            raise UserError(f"{where}: {name} is the list of lists {shown:.60}; {SEVERAL}.")
        raise UserError(f"{where}: {name} is {shown:.60}; expected one text.")
    refuse_surrogates(value, f"{where}: {name}")
    return value


def items_by_line(lines: Lines) -> Iterator[Item]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield number, parse_object(line, lines.path, number)


def items_of_text(lines: Lines) -> tuple[Iterator[Item], str]:
    """Return the samples of a JSON text as numbered objects, and the form of the JSON in words.

    The text is a list of objects; an object of lists of equal length; an object that holds one of these two under a
    name; an object of objects by id; or a table as pandas writes it.
    """
    path = lines.path
    try:
        found: Any = DECODER.decode("\n".join(lines))
    except json.JSONDecodeError as error:
        cure = "the file may be cut short"
        if error.lineno == 1 and len(lines.data.splitlines()) > 1:
            cure = "if it is a log, keep only its references and predictions, as CSV or as lines REF: and HYP:"
        raise UserError(f"{path}, line {error.lineno}: not JSON ({error.msg}); {cure}.") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({error}).") from error
    kind = "J (JSON list"
    if is_by_key(found):
        found, kind = by_key(found), "J (JSON objects by key"
    if is_split(found):
        found = [dict(zip(found["columns"], row, strict=False)) for row in found["data"]]
    if isinstance(found, dict) and not is_lists(found):
        inner = [value for value in found.values() if is_objects(value) or is_lists(value)]
        found = inner[0] if len(inner) == 1 else found
    if is_objects(found):
        return enumerate(found, 1), kind
    if is_lists(found):
        lists = {name: value for name, value in found.items() if isinstance(value, list)}
        lengths = {len(value) for value in lists.values()}
        if len(lengths) > 1:
            listed = ", ".join(f"{name}: {len(value)}" for name, value in lists.items())
            raise UserError(
                f"{path}: lists of different lengths ({listed}); expected one item for each sample in each list."
            )
        columns = list(zip(*lists.values(), strict=True))
        return ((i, dict(zip(lists, row, strict=True))) for i, row in enumerate(columns, 1)), "J (JSON lists by name"
    refuse_texts_by_id(found, path)
    raise UserError(
        f"{path}: JSON without predictions; expected a list of objects, each with a reference and a prediction, or a "
        "list of references and one of predictions."
    )


def is_by_key(value: Any) -> bool:
    """Return whether a value is an object of two or more objects."""
    return isinstance(value, dict) and len(value) > 1 and all(isinstance(inner, dict) for inner in value.values())


def by_key(found: dict[str, dict[str, Any]]) -> Any:
    """Return the samples of an object whose values are samples by id, or columns by name, as pandas writes a table.

    Columns with different keys are returned unchanged, and the caller refuses them.
    """
    columns = list(found.values())
    if not is_header(normalize_names(found)):
        return columns
    if any(column.keys() != columns[0].keys() for column in columns):
        return found
    return [{name: column[key] for name, column in found.items()} for key in columns[0]]


def refuse_texts_by_id(found: Any, path: epath.Path) -> None:
    """Raise UserError for an object of three or more texts whose names are ids, not columns."""
    texts = isinstance(found, dict) and len(found) > 2 and all(isinstance(value, str) for value in found.values())
    if texts and not known_names(normalize_names(found)):
        raise UserError(f"{path}: texts by id without references; give their references with --reference=FILE.")


def is_split(value: Any) -> bool:
    """Return whether a value is a table that pandas wrote with `orient="split"`."""
    columns, rows = (value.get(name) if isinstance(value, dict) else None for name in ("columns", "data"))
    if not (isinstance(columns, list) and isinstance(rows, list) and rows):
        return False
    return all(isinstance(row, list) and len(row) == len(columns) for row in rows)


def is_objects(value: Any) -> bool:
    """Return whether a value is a list of objects, at least one."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def is_lists(value: Any) -> bool:
    """Return whether a value is an object with at least two non-empty lists."""
    return isinstance(value, dict) and sum(isinstance(v, list) and bool(v) for v in value.values()) > 1


CHATS = ("messages", "conversations", "conversation", "chat", "dialogue")  # names of lists of messages
ASSISTANTS = ("assistant", "gpt", "model", "bot")  # roles of the model in a chat
REFERENCES = {*REFERENCE_NAMES, *(reference for reference, _ in PAIRS)}


def without_chat(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its chat replaced by the assistant's last message, as the missing reference or prediction."""
    chat = chat_of(row)
    if chat is None:
        return row
    rest = {name: value for name, value in row.items() if name != chat}
    names = set(normalize_names(rest))
    sides = bool(names & REFERENCES), bool(names & set(PREDICTION_NAMES))
    if sides[0] == sides[1]:  # both exist: drop the chat; neither exists: the message could be either
        return rest if all(sides) else row
    said = [message for message in row[chat] if role_of(message) in ASSISTANTS]
    return {**rest, "prediction" if sides[0] else "reference": content_of(said[-1]) if said else ""}


def chat_of(row: dict[str, Any]) -> str | None:
    """Return the name under which a row has a chat, a list of messages with roles, or None."""
    for name, turns in row.items():
        if name.lower() in CHATS and isinstance(turns, list) and all(isinstance(t, dict) and role_of(t) for t in turns):
            return name
    return None


def refuse_chat(row: dict[str, Any], where: str) -> None:
    """Raise UserError for a row with a chat and less than two other texts, which --columns could name."""
    chat = chat_of(row)
    others = [name for name in normalize_names(row) if name not in ABOUT_NAMES]
    if chat is not None and len(others) <= 2:
        raise UserError(
            f"{where}: no turn of the chat {chat!r} is known to be the reference or the prediction; write one row of "
            'reference and prediction per line, such as {"reference": "...", "prediction": "..."}.'
        )


def role_of(message: dict[str, Any]) -> str:
    return str(message.get("role", message.get("from", ""))).lower()


def content_of(message: dict[str, Any]) -> Any:
    """Return the text of a message; the texts of several parts are joined."""
    content = message.get("content", message.get("value", message.get("text", "")))
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return "".join(part.get("text", "") for part in content if isinstance(part.get("text", ""), str))
    return content
