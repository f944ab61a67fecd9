"""The servers that tests start are what a test expects: its own, and empty."""

from __future__ import annotations

import pytest

from pipelines.publishing.object_store.place import Place
from tests.servers import s3_bucket


@pytest.mark.rest
def test_a_bucket_is_empty_whatever_an_earlier_test_left(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        with s3_bucket(monkeypatch) as url:
            place = Place(f"{url}/ledger")
            assert place.sizes("") == {}
            place.put("latest.json", b"{}")
            assert place.get("latest.json") == b"{}"
