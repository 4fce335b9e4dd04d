"""`eeg2text app`: a page in the browser that judges files of decoded text, on this machine."""

import argparse
import os
from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Serve the page until interrupted."""
    parser = argparse.ArgumentParser("eeg2text app", description=__doc__)
    host = os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1")  # a Space of Hugging Face sets it
    parser.add_argument("--host", default=host, help="address to serve on; the loopback by default")
    parser.add_argument("--port", type=int, default=7860, help="7860 by default")
    flags = parser.parse_args(argv)
    from eeg2text_jax.app.interface import serve

    serve(flags.host, flags.port)
    return 0
