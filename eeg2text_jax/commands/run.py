"""`eeg2text run --config=FILE.py --workdir=DIR`: the whole pipeline; resumes if DIR has work in it."""

from eeg2text_jax.configuration import parse_config


def main(argv: list[str]) -> int:
    arguments = parse_config(argv, "run", options=("workdir",))
    from eeg2text_jax.pipeline import run  # imports JAX, which a misspelt option should not wait for

    run(arguments.config, arguments.options["workdir"])
    return 0
