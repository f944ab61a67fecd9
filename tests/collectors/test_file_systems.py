"""What a store reports of itself in an error has no secret of its URL or of the environment."""

from __future__ import annotations

import base64
import threading
import time

import pytest

from collectors import file_systems
from pipelines.landing.lake import Lake, LakeError
from pipelines.publishing.object_store.place import ObjectStoreError, Place

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


def test_a_request_without_an_answer_ends_at_its_limit_and_others_are_not_held_up():
    requests, released = file_systems.Requests(0.3), threading.Event()
    with pytest.raises(TimeoutError, match=r"^no answer within 0\.3 s \(limits\.answer_seconds\)$"):
        requests.answer(released.wait)
    assert requests.answer(lambda: "an answer") == "an answer"
    with pytest.raises(FileNotFoundError, match=r"^gone$"):
        requests.answer(gone)
    released.set()


def test_a_store_that_answers_nothing_is_not_asked_without_end():
    requests, released = file_systems.Requests(0.05), threading.Event()
    for _ in range(file_systems.MOST_UNANSWERED):
        with pytest.raises(TimeoutError, match="no answer within"):
            requests.answer(released.wait)
    with pytest.raises(TimeoutError, match=r"^not asked: 8 earlier requests have no answer yet$"):
        requests.answer(lambda: "asked")
    released.set()
    time.sleep(0.5)
    assert requests.answer(lambda: "asked") == "asked"


def gone() -> None:
    raise FileNotFoundError("gone")


@pytest.mark.parametrize(
    ("path", "is_remote"),
    [
        *[(path, False) for path in ("lake/", "/data/lake", "file:///data/lake", "memory://b/x", "C:/lake")],
        *[(path, True) for path in ("s3://b/x", "hdfs://name:8020/x", "abfss://c@a.example/x", "S3://b/x")],
    ],
)
def test_what_a_server_holds_is_known_by_the_url(path, is_remote):
    assert file_systems.is_remote(path) == is_remote
