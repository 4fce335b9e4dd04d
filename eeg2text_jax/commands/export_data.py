"""`eeg2text export-data DATA.h5 --out=DATA.parquet`: a data file for pandas, datasets and whatever reads Parquet."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from eeg2text_jax.data.arrow import write_parquet
from eeg2text_jax.data.datafile import read_datafile


def main(argv: Sequence[str]) -> int:
    """
    Raises:
      UserError: the data file is not usable, or pyarrow is not installed.
    """
    parser = argparse.ArgumentParser(prog="eeg2text export-data", description=__doc__)
    parser.add_argument("data", type=Path, metavar="DATA.h5")
    parser.add_argument("--out", type=Path, required=True, metavar="DATA.parquet")
    flags = parser.parse_args(argv)
    data = read_datafile(flags.data)
    write_parquet(data, flags.out)
    print(f"wrote {flags.out}: {len(data)} samples of {data.n_features} features a word")
    return 0
