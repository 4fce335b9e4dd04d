"""Exclude donors from the content null of `shuffled`: the sentences whose recordings its predictions were made from.

A working decoder writes the donor's sentence if it is fed the donor's recording. Compared with that sentence, the
control's null would contain a hit, and the difference to EEG would exceed the content of EEG.
"""

import numpy as np

from eeg2text_jax.auditing.align import Aligned, Condition

SHUFFLED = "shuffled"


def donor_places(condition: Condition, aligned: Aligned) -> np.ndarray | None:
    """Return the index of each row's donor sentence, int `[N]`; -1 if it is unknown or not judged.

    None if no row names a donor.
    """
    if not any(row.donor for row in condition.rows):
        return None
    places = {
        row.sentence_id: place
        for other in aligned.conditions
        for row, place in zip(other.rows, other.sentence.tolist(), strict=True)
    }
    found = np.array([places.get(row.donor, -1) for row in condition.rows])
    return np.where(found == condition.sentence, -1, found)


def donor_notes(aligned: Aligned) -> list[str]:
    """Return notes on controls that were fed other sentences' recordings."""
    notes = []
    for condition in aligned.conditions[1:]:
        if all(row.eval_condition != SHUFFLED for row in condition.rows):
            continue
        if all(row.donor for row in condition.rows):
            notes.append(f"{condition.name}: no prediction is held against the sentence whose recording it is of.")
        else:
            notes.append(
                f"{condition.name}: the rows do not say whose recording they are of (field donor); where the model "
                "decodes, this control's null holds those sentences, too, and the difference reads too large."
            )
    return notes


def places_within(donors: np.ndarray | None, members: np.ndarray) -> np.ndarray | None:
    """Convert donor indices to positions within a stratum with sentences `members`; -1 for donors outside it."""
    if donors is None:
        return None
    place = np.full(max(donors.max(), members.max()) + 2, -1)
    place[members] = np.arange(len(members))
    return place[donors]  # place[-1] is -1


def without_donors(
    sums: np.ndarray, group: np.ndarray, place: np.ndarray, donor: np.ndarray, found: np.ndarray
) -> np.ndarray:
    """Return a stratum's table without comparisons of a row with its donor's sentence.

    A cell becomes the mean of its other rows, times its number of rows. If all its rows come from that donor, the next
    sentence's predictions replace them (a mean over all sentences would have a smaller variance than other cells).

    Args:
      sums: statistics summed over rows, `[Q, m, m, K]`: group, sentence of the predictions, reference.
      group, place, donor: of each row, int `[r]`; the donor's place in the stratum, -1 for none.
      found: statistics of each row against its donor's sentence, `[r, K]`; of rows without one anything.
    """
    groups, m = sums.shape[:2]
    lent, n, n_lent = np.zeros(sums.shape), np.zeros((groups, m)), np.zeros((groups, m, m))
    np.add.at(n, (group, place), 1)
    at = np.flatnonzero(donor >= 0)
    cells = group[at], place[at], donor[at]
    np.add.at(lent, cells, found[at])
    np.add.at(n_lent, cells, 1)
    left = n[:, :, None] - n_lent
    mean = (sums - lent) / np.maximum(left, 1)[..., None]
    for q, s, t in np.argwhere((left == 0) & (n[:, :, None] > 0)).tolist():
        others = [u % m for u in range(s + 1, s + m) if u % m != t and left[q, u % m, t] > 0 and n[q, u % m] > 0]
        # Where there is no other sentence, the control's prediction for the reference itself: it is of another's
        # recording, too.
        mean[q, s, t] = mean[q, others[0] if others else t, t]
    return mean * n[:, :, None, None]
