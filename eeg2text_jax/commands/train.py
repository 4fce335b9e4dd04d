"""`eeg2text train --config=FILE.py --workdir=DIR`: one stage of `run` on its own."""

from eeg2text_jax.configuration import parse_config


def main(argv: list[str]) -> int:
    arguments = parse_config(argv, "train", options=("workdir",))
    from eeg2text_jax import pipeline

    with pipeline.begun(arguments.config, arguments.options["workdir"]) as study:
        pipeline.train(study)
    return 0
