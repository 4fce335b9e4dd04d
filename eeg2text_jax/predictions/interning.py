"""Values that many rows have in common, kept once."""


class Shared:
    """One object for what many rows have in common; a million rows of ten readers then fit in a gigabyte."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._ids: dict[int, int] = {}
        self._lists: dict[str, list[int]] = {}

    def text(self, text: str) -> str:
        return self._texts.setdefault(text, text)

    def ids(self, ids: list[int]) -> list[int]:
        return [self._ids.setdefault(i, i) for i in ids]

    def reference_ids(self, reference: str, ids: list[int]) -> list[int]:
        known = self._lists.get(reference)
        if known != ids:
            known = self._lists[reference] = self.ids(ids)
        return known
