"""The upload to the Hub: one call for the repository, one for the folder; a sentence where the Hub refuses."""

import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.run import check_name, push_folder


@pytest.fixture
def calls(monkeypatch):
    made = []

    class Api:
        def create_repo(self, name, **options):
            made.append(("create_repo", name, options))
            if name == "who/refused":
                raise OSError("401 Unauthorized\nmore of it")
            return f"https://hub.test/{name}"

        def upload_folder(self, **options):
            made.append(("upload_folder", options["repo_id"], options["folder_path"]))

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    return made


def test_a_folder_is_uploaded_to_a_private_repository(calls):
    assert push_folder("export", "my/model") == "https://hub.test/my/model"
    created = ("create_repo", "my/model", {"private": True, "exist_ok": True})
    assert calls == [created, ("upload_folder", "my/model", "export")]


def test_a_refusal_is_one_sentence_that_says_what_is_finished(calls):
    with pytest.raises(UserError, match=r"--push=who/refused: .*\(401 Unauthorized\); the folder export is finished"):
        push_folder("export", "who/refused")
    assert len(calls) == 1


@pytest.mark.parametrize("name", ["model", "a/b/c", "a b/c", ""])
def test_a_name_that_is_none_is_refused_before_anything_is_exported(name):
    with pytest.raises(UserError, match="ORGANIZATION/MODEL"):
        check_name(name)
