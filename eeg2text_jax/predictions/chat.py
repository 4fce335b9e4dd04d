"""Chat JSON: samples whose reference or prediction is the assistant's last message."""

from typing import Any

from eeg2text_jax.predictions.columns import PAIRS, PREDICTION_NAMES, REFERENCE_NAMES, normalised

CHATS = ("messages", "conversations", "conversation", "chat", "dialogue")
ASSISTANTS = ("assistant", "gpt", "model", "bot")
REFERENCES = {*REFERENCE_NAMES, *(reference for reference, _ in PAIRS)}


def without_chat(row: dict[str, Any]) -> dict[str, Any]:
    """An object with the assistant's last message in place of its chat, under the name of the side that it lacks."""
    chat = next((name for name in row if name.lower() in CHATS and is_chat(row[name])), None)
    if chat is None:
        return row
    rest = {name: value for name, value in row.items() if name != chat}
    names = set(normalised(rest))
    sides = bool(names & REFERENCES), bool(names & set(PREDICTION_NAMES))
    if sides[0] == sides[1]:  # both are there, or nothing says which the message is
        return rest if all(sides) else row
    said = [message for message in row[chat] if role_of(message) in ASSISTANTS]
    return {**rest, "prediction" if sides[0] else "reference": content_of(said[-1]) if said else ""}


def is_chat(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(turn, dict) and role_of(turn) for turn in value)


def role_of(message: dict[str, Any]) -> str:
    return str(message.get("role", message.get("from", ""))).lower()


def content_of(message: dict[str, Any]) -> Any:
    """The text of a message, which may be in parts."""
    content = message.get("content", message.get("value", message.get("text", "")))
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return "".join(part.get("text", "") for part in content if isinstance(part.get("text", ""), str))
    return content
