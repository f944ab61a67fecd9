"""What a store reports of itself in an error has no secret of its URL or of the environment."""

from __future__ import annotations

import base64

import pytest

from collectors import file_systems
from pipelines.landing.lake import Lake, LakeError
from pipelines.publishing.object_store_place import ObjectStoreError, Place

KEY = "wJalr/XUtn+EMI"


@pytest.mark.parametrize("sent", [KEY, "wJalr%2FXUtn%2BEMI", base64.b64encode(KEY.encode()).decode()])
def test_a_store_that_repeats_a_key_does_not_bring_it_into_a_message(monkeypatch, tmp_path, sent):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(f"the key {sent} is wrong")

    lake, place = Lake(tmp_path), Place(str(tmp_path))
    monkeypatch.setattr(lake.fs, "cat_file", refuse)
    with pytest.raises(LakeError, match=r"OSError: the key \*\*\* is wrong$"):
        lake.read(["one"])
    with (
        pytest.raises(ObjectStoreError, match=r"cannot be written: the key \*\*\* is wrong$"),
        place.refusals("cannot be written"),
    ):
        refuse()


def test_the_secrets_of_a_url_are_its_password_and_its_long_fields():
    secrets = file_systems.secrets_of("abfss://bob:s3cret@store/ledger?sig=Zm9v%2Bx&v=2")
    assert secrets.masked("bob:s3cret s3cret Zm9v%2Bx Zm9v+x v=2") == "*** *** *** *** v=2"
    assert file_systems.secrets_of("/data/lake").masked("/data/lake: no space left") == "/data/lake: no space left"
