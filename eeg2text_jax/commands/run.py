"""`eeg2text run --config=FILE.py --workdir=DIR`: the whole pipeline; resumes if DIR has work in it.

`--folds=5`, or `--folds=subjects`, does it once for each fold, with one verdict over all test parts.
"""

from eeg2text_jax.configuration import parse_config


def main(argv: list[str]) -> int:
    arguments = parse_config(argv, "run", options=("workdir",), optional=("folds",))
    if arguments.options["folds"]:
        from eeg2text_jax.folds import run_folds

        run_folds(arguments.config, arguments.options["workdir"], arguments.options["folds"])
        return 0
    from eeg2text_jax.pipeline import run  # imports JAX, which a misspelt option should not wait for

    run(arguments.config, arguments.options["workdir"])
    return 0
