"""The page that judges files, as a Space of Hugging Face."""

import os

from eeg2text_jax.instrument.app.interface import serve

if __name__ == "__main__":
    serve(os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1"), int(os.environ.get("GRADIO_SERVER_PORT", "7860")))
