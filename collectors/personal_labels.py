"""Labels of gateways' counters that may name a person or an address: which are kept, and what replaces the others.

Add here what of a gateway's labels no file of the ledger may hold. Keep out which label names the tenant: that is the
fleet file's.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

from collectors.catalogue import CATALOGUE_FOLDERS

# In the place of the labels that are left out: equal where they are, so that each counter stays one of its own.
LEFT_OUT = "left_out_labels"
# Never kept, and no name of a tenant: LiteLLM's `user_email`, `client_ip`, `user_agent` and `api_base`, OpenTelemetry's
# addresses.
LABELS_OF_PERSONS = frozenset(
    {"user_email", "client_ip", "user_agent", "api_base", "client_address", "server_address", "user_name", "email"}
)
# The word that a gateway writes for a name that it has not.
NO_NAME = {"litellm": "None"}
# What names one process, whatever its pages hold.
SCRAPED = ("job", "instance")
# One character before the `@` is enough to find one, and keeps the search of a long text linear.
_MAIL = re.compile(r"[^\s@]@[^\s@]+\.[^\s@]")
_ADDRESS = re.compile(r"\d{1,3}(\.\d{1,3}){3}|[0-9a-f]{0,4}(:[0-9a-f]{0,4}){2,7}", re.IGNORECASE)


def is_mail(value: str) -> bool:
    """Whether a text holds an e-mail address."""
    return _MAIL.search(value) is not None


def is_personal(value: str) -> bool:
    """Whether a name of a tenant is an e-mail address or a network address."""
    return _MAIL.search(value) is not None or _ADDRESS.fullmatch(value.strip("[]")) is not None


class PersonalLabels:
    """What is kept of the labels of gateways' counters. `stated` are the labels that the fleet file, or the agent's
    option, names tenants by.

    Of a label that the gateway itself writes (seed exporter_labels) only those are kept that the catalogue reads; of
    what the scraper added all. A kept value that holds an e-mail address is left out, too, and so is a stated one that
    is a network address.
    """

    def __init__(self, stated: Collection[str] = ()) -> None:
        self._stated = frozenset(stated)

    def without(self, source_kind: str, labels: Mapping[str, str]) -> Mapping[str, str]:
        """The labels that may be kept. If any is left out, LEFT_OUT has a digest of them: it keeps counters apart, and
        needs all of them, a key's hash among them, to be guessed."""
        own = page_labels().get(source_kind)
        if own is None:
            return labels
        return _replaced(labels, {name for name, value in labels.items() if not self._is_kept(name, value, own)})

    def known(self, source_kind: str, labels: Mapping[str, str]) -> Mapping[str, str]:
        """The same of labels that any program may have written: only those are kept that the catalogue reads."""
        read = read_labels(source_kind)
        return _replaced(
            labels, {name for name, value in labels.items() if not self._is_kept(name, value, {}, name in read)}
        )

    def _is_kept(self, name: str, value: str, own: Mapping[str, bool], is_known: bool = True) -> bool:
        if name == LEFT_OUT:
            return True
        if name.casefold() in LABELS_OF_PERSONS or _MAIL.search(value):
            return False
        if name in self._stated:
            return not is_personal(value)
        return own.get(name, is_known)


def _replaced(labels: Mapping[str, str], names: Collection[str]) -> Mapping[str, str]:
    left_out = {name: labels[name] for name in names if labels[name] != ""}
    if not left_out:
        return labels
    text = json.dumps(left_out, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return {**{name: value for name, value in labels.items() if name not in left_out}, LEFT_OUT: digest}


@cache
def page_labels() -> Mapping[str, Mapping[str, bool]]:
    """Kind of gateway -> label of its own pages -> whether the catalogue reads it."""
    kinds, read = set(), set()
    for row in _rows("metric_catalog.csv"):
        if row["level"] == "gateway":
            kinds.add(row["source_kind"])
            if row["match_label"]:
                read.add((row["source_kind"], row["match_label"]))
    read |= {(row["source_kind"], row["label"]) for row in _rows("label_catalog.csv")}
    found: dict[str, dict[str, bool]] = {kind: {} for kind in kinds}
    for row in _rows("exporter_labels.csv"):
        if row["source_kind"] in kinds:
            found[row["source_kind"]][row["label"]] = (row["source_kind"], row["label"]) in read
    return found


@cache
def read_labels(source_kind: str) -> frozenset[str]:
    """The labels of a kind of source that the catalogue reads, or that a scraper adds."""
    of_kind = [row["label"] for row in _rows("label_catalog.csv") if row["source_kind"] in (source_kind, "any")]
    matched = [row["match_label"] for row in _rows("metric_catalog.csv") if row["source_kind"] == source_kind]
    return frozenset({*of_kind, *matched, *SCRAPED})


def _rows(name: str) -> list[dict[str, str]]:
    folder = next(folder for folder in CATALOGUE_FOLDERS if (folder / name).is_file())
    with Path(folder, name).open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
