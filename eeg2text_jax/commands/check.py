"""`eeg2text check DATA.h5`: what is in a data file, and what is wrong with it; exit status 2 where something is."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from eeg2text_jax.data.check import check_datafile, scale_figure
from eeg2text_jax.files import replacing


def main(argv: Sequence[str]) -> int:
    """
    Raises:
      UserError: the file is not there, or is no data file.
    """
    parser = argparse.ArgumentParser(prog="eeg2text check", description=__doc__)
    parser.add_argument("data", type=Path, metavar="DATA.h5")
    parser.add_argument("--png", type=Path, metavar="OUT", help="a picture of the features' scales, band by channel")
    flags = parser.parse_args(argv)
    findings = check_datafile(flags.data)
    print(findings.text())
    if flags.png and findings.spread is not None:
        flags.png.parent.mkdir(parents=True, exist_ok=True)
        with replacing(flags.png) as partial:
            scale_figure(findings).savefig(str(partial), format="png", dpi=120)
        print(f"wrote {flags.png}")
    return 2 if findings.problems else 0
