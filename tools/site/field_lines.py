"""The sets of `tools/field.py` and what was found in them: a line of the manifest, a line of the table."""

import dataclasses
from collections.abc import Sequence

LEVELS = ("severe", "warning", "note")
FREE, FORCED = "free-running", "teacher-forced"


@dataclasses.dataclass(frozen=True)
class PublishedSet:
    """One line of the manifest."""

    set: str
    repository: str
    commit: str
    path: str
    model: str
    train_condition: str
    eval_condition: str
    mode: str  # how it was decoded as far as its repository tells; empty where it does not
    layout: str
    control: str  # the sets that are its controls, with commas, or empty
    groups: str  # columns that group its references, with commas, or empty
    note: str

    @property
    def controls(self) -> list[str]:
        return [name for name in self.control.split(",") if name]

    @property
    def group_columns(self) -> list[str]:
        return [name for name in self.groups.split(",") if name]


Level = tuple[str, str, str, float, float, float]  # column, control, between or within, content, p, MDE


@dataclasses.dataclass
class Line:
    """One set in one mode, scored and audited; figures are None where there are none."""

    published: PublishedSet
    mode: str  # what the file says
    rows: int = 0
    sentences: int = 0
    bleu: float | None = None
    score: float | None = None  # of the audit's endpoint: null + content
    null: float | None = None
    content: float | None = None
    p: float | None = None
    control: str = ""
    difference: float | None = None
    p_difference: float | None = None
    verdict: str = ""
    sentence: str = ""
    provenance: str = ""
    digest: str = ""  # of references and predictions
    copy_of: str = ""  # an earlier set with the same ones
    levels: list[Level] = dataclasses.field(default_factory=list)
    against: list[tuple[str, float, float, str]] = dataclasses.field(default_factory=list)
    flags: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)  # level, code, message
    notes: list[str] = dataclasses.field(default_factory=list)

    @property
    def decoded(self) -> str:
        """How it was decoded, as far as the file or else its repository tells; empty where neither does."""
        made = self.published.mode
        return self.mode if self.mode in (FREE, FORCED) else made if made in (FREE, FORCED) else ""


def codes(line: Line, levels: Sequence[str] = LEVELS) -> list[str]:
    """Each finding once, the severe ones first."""
    ranked = sorted(line.flags, key=lambda flag: LEVELS.index(flag[0]))
    return list(dict.fromkeys(code for level, code, _ in ranked if level in levels))
