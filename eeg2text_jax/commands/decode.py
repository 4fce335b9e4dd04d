"""`eeg2text decode --config=FILE.py --workdir=DIR`: one stage of `run` on its own."""

from eeg2text_jax.configuration import parse_config


def main(argv: list[str]) -> int:
    arguments = parse_config(argv, "decode", options=("workdir",))
    from eeg2text_jax import pipeline

    with pipeline.begun(arguments.config, arguments.options["workdir"], make=False) as study:
        pipeline.decode(study)
    return 0
