"""`eeg2text judge --config=configs/judge.py:checkpoint=DIR,pairs=FILE.tsv --workdir=DIR`: tunes LATTEScore's judge."""

from eeg2text_jax.errors import UserError
from eeg2text_jax.judge.fields import RANGES
from eeg2text_jax.study.configuration import parse_config


def main(argv: list[str]) -> int:
    arguments = parse_config(argv, "judge", options=("workdir",), optional=("labels",), ranges=RANGES)
    labels = arguments.options["labels"]
    if labels not in ("", "severity", "preserved"):
        raise UserError(f"--labels={labels}: expected severity (1 is preserved) or preserved (0 is not).")
    from eeg2text_jax.judge.session import judge  # imports JAX, which a misspelt option should not wait for

    judge(arguments.config, arguments.options["workdir"], labels)  # type: ignore[arg-type]
    return 0
