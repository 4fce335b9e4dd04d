"""`python -m eeg2text_jax` is the same as `eeg2text`."""

import sys

from eeg2text_jax.cli import main

sys.exit(main())
