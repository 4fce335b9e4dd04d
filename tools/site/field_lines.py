"""The sets of `tools/field.py` and what was found in them: a line of the manifest, a line of the table."""

import dataclasses

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


@dataclasses.dataclass
class Line:
    """One set in one mode, scored and audited; figures are None where there are none."""

    published: PublishedSet
    mode: str  # what the file says
    rows: int = 0
    sentences: int = 0
    bleu: float | None = None
    score: float | None = None  # in points of the endpoint, as all that follows
    null: float | None = None
    content: float | None = None
    p: float | None = None
    control: str = ""
    difference: float | None = None
    p_difference: float | None = None
    verdict: str = ""
    base: str = ""  # the verdict without qualifiers
    sentence: str = ""
    provenance: str = ""
    digest: str = ""  # of references and predictions
    copy_of: str = ""  # an earlier set with the same ones
    groups: list[tuple[str, ...]] = dataclasses.field(default_factory=list)  # cells of the table of groups
    findings: list[tuple[str, str, bool]] = dataclasses.field(default_factory=list)  # code, message, bars a verdict
    notes: list[str] = dataclasses.field(default_factory=list)

    @property
    def decoded(self) -> str:
        """How it was decoded, as far as the file or else its repository tells; empty where neither does."""
        made = self.published.mode
        return self.mode if self.mode in (FREE, FORCED) else made if made in (FREE, FORCED) else ""

    @property
    def codes(self) -> list[str]:
        """The codes of the findings, those that bar a verdict first."""
        ranked = sorted(self.findings, key=lambda finding: not finding[2])
        return list(dict.fromkeys(code for code, *_ in ranked))
