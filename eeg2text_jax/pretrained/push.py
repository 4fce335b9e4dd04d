"""Upload of an exported folder to the Hugging Face Hub; only if the user asks for it."""

import re

from eeg2text_jax.errors import UserError, first_line


def check_name(name: str) -> None:
    """Raise UserError unless a name is one of a repository, ORGANIZATION/MODEL."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise UserError(f"--push={name}: expected the name of a repository, ORGANIZATION/MODEL.")


def push_folder(folder: str, name: str) -> str:
    """Upload a folder as a model of the Hub, in one commit; a repository that is new is private.

    The token is the one that huggingface_hub finds: HF_TOKEN, or that of `hf auth login`.

    Returns:
      The repository's address.

    Raises:
      UserError: there is no token, it may not write there, or the Hub cannot be reached.
    """
    from huggingface_hub import HfApi  # 0.3 s, and seldom needed

    api = HfApi()
    try:
        address = api.create_repo(name, private=True, exist_ok=True)
        api.upload_folder(folder_path=folder, repo_id=name, commit_message="Export of eeg2text_jax")
    except Exception as error:  # of HTTP, of names and of tokens; the Hub's library has no common one
        raise UserError(
            f"--push={name}: the Hub refused or cannot be reached ({first_line(error)}); the folder {folder} is "
            "finished: log in with `hf auth login` and upload it with `hf upload`."
        ) from error
    return str(address)
