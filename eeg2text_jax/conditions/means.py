"""Mean words of the train part, for the conditions that feed a constant."""

import numpy as np

from eeg2text_jax.data.datafile import DataFile


def train_means(data: DataFile, train: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each subject's mean word, from the train part only.

    Args:
      train: indices of the train part's samples.

    Returns:
      `means` float32 `[S + 1, F]`: a row for each subject of the data file in alphabetical order, then the mean of
      all train words; a subject without samples in the train part has that mean, too. `subject` int32 `[N]`: the row
      of every sample of the data file.
    """
    subjects, subject = np.unique(data.subject.astype(str), return_inverse=True)
    sums = np.zeros((len(subjects), data.n_features))
    words = np.zeros(len(subjects))
    for i in train:
        sums[subject[i]] += data.words(i).sum(axis=0, dtype=np.float64)
        words[subject[i]] += len(data.words(i))
    overall = sums.sum(axis=0) / words.sum()
    seen = words > 0
    means = np.vstack([np.where(seen[:, None], sums / np.maximum(words, 1)[:, None], overall), overall])
    return means.astype(np.float32), subject.astype(np.int32)
