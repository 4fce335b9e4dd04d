"""Systems side by side: decoders of the same sentences, by their content and by paired differences of it."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from eeg2text_jax.auditing.align import align
from eeg2text_jax.auditing.contrast import Z_95, Contrast, Strata, contrast, holm
from eeg2text_jax.auditing.endpoints import WORDS, Endpoint
from eeg2text_jax.auditing.table import fill, strata_members, text_scorer
from eeg2text_jax.auditing.verdict import interval_text, p_cell
from eeg2text_jax.predictions.file import Prediction

SYSTEM_HEADINGS = ("system", "rows", "score", "others", "content", "95 % CI", "p", "p (Holm)")
PAIR_HEADINGS = ("difference in content", "points", "95 % CI", "p", "p (Holm)")


@dataclasses.dataclass(frozen=True)
class Systems:
    """Content of each system above its own null, and of each pair; p adjusted over all of them (Holm).

    p of a system is one-sided (content above 0), p of a pair is two-sided.
    """

    endpoint: Endpoint
    sentences: int
    rows: dict[str, int]
    systems: dict[str, Contrast]
    pairs: dict[tuple[str, str], Contrast]
    adjusted: list[float]  # of the systems, then of the pairs
    notes: tuple[str, ...]

    def system_rows(self) -> list[tuple[str, ...]]:
        """Return the rows of a text table under `SYSTEM_HEADINGS`."""
        return [
            (
                name,
                str(self.rows[name]),
                f"{c.scores[0]:.2f}",
                f"{c.nulls[0]:.2f}",
                f"{c.effect:+.2f}",
                interval_text(c.interval(Z_95)),
                p_cell(c.decisive_p),
                p_cell(adjusted),
            )
            for (name, c), adjusted in zip(self.systems.items(), self.adjusted, strict=False)
        ]

    def pair_rows(self) -> list[tuple[str, ...]]:
        """Return the rows of a text table under `PAIR_HEADINGS`."""
        adjusted = self.adjusted[len(self.systems) :]
        return [
            (f"{a} − {b}", f"{c.effect:+.2f}", interval_text(c.interval(Z_95)), p_cell(two_sided(c)), p_cell(p))
            for ((a, b), c), p in zip(self.pairs.items(), adjusted, strict=True)
        ]


def two_sided(found: Contrast) -> float:
    """Return the two-sided p of a contrast."""
    return min(1.0, 2 * min(found.p, found.p_less))


def compare_systems(
    systems: Mapping[str, Sequence[Prediction]], *, endpoint: Endpoint = WORDS, mode: str | None = None
) -> Systems:
    """Compare decoders of the same sentences: name -> predictions made from the recordings, in the order of the table.

    Only sentences that all systems have are compared; their numbers of rows may differ.

    Raises:
      UserError: the systems share no sentence, or too few.
    """
    aligned = align(systems, mode=mode, rows_alike=False)
    strata = Strata(strata_members(aligned.strata))
    scores = text_scorer(aligned, endpoint)
    cells = {c.name: fill(c, aligned.references, strata.members, scores) for c in aligned.conditions}
    alone = {name: contrast(strata, table) for name, table in cells.items()}
    pairs = {(a, b): contrast(strata, cells[a], cells[b], name=b) for a, b in itertools.combinations(cells, 2)}
    p_values = [*(c.decisive_p for c in alone.values()), *map(two_sided, pairs.values())]
    rows = {condition.name: len(condition.rows) for condition in aligned.conditions}
    return Systems(endpoint, len(strata), rows, alone, pairs, holm(p_values), aligned.notes)
