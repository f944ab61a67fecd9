"""Which alarms leave the machine, and to whom: the key `alarms` of the fleet file.

Add a kind of receiver here together with what sends to it (`pipelines.alarming`). Secrets are never values in the file,
only names of environment variables; one that is not set costs its receiver a message and no run its figures. Keep out
what raises an alarm.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from collectors.samples import shown_variable
from pipelines.fleet.values import Name, Part, Positive, SourceName, Url, VariableName

Severity = Literal["error", "warning", "info"]
Kind = Literal["run", "source", "held_back", "check", "drift", "cost", "budget", "advice"]
MailAddress = Annotated[str, Field(pattern=r"^[^@\s,;<>\"]+@[^@\s,;<>\"]+$")]


class Receiver(Part):
    """The keys of every kind of receiver. It gets alarms of `kinds` (all, where none is stated) from `least_severity`
    up."""

    name: SourceName
    least_severity: Severity = "info"
    kinds: tuple[Kind, ...] = ()
    timeout_seconds: Annotated[float, Field(strict=True, gt=0, le=30)] = 10.0


class HttpReceiver(Receiver):
    """A receiver that is reached by HTTP."""

    bearer_env: VariableName | None = None
    username_env: VariableName | None = None
    password_env: VariableName | None = None
    ca_file_env: VariableName | None = None

    @model_validator(mode="after")
    def _one_login(self) -> HttpReceiver:
        user = (self.username_env is None, self.password_env is None)
        if user[0] != user[1] or (self.bearer_env is not None and not user[0]):
            raise ValueError("expected bearer_env alone, username_env with password_env, or none of them")
        return self


class AlertmanagerReceiver(HttpReceiver):
    """Prometheus' Alertmanager, which groups, silences and passes on. `url` is its root, without /api/v2."""

    kind: Literal["alertmanager"]
    url: Url


class MessageReceiver(Receiver):
    """The keys of receivers of messages. A message has what is new and what is over; the first one of a UTC date has
    all that lasts, too, unless `digest` is false."""

    digest: bool = True


class WebhookReceiver(HttpReceiver, MessageReceiver):
    """An URL that takes a message: as Wattledger's own JSON, in the form of Slack, or as the Adaptive Card that a
    workflow of Teams takes. The URLs of Slack and Teams are secrets: `url_env`."""

    kind: Literal["webhook", "slack", "teams"]
    url: Url | None = None
    url_env: VariableName | None = None

    @model_validator(mode="after")
    def _one_url(self) -> WebhookReceiver:
        if (self.url is None) == (self.url_env is None):
            raise ValueError("expected exactly one of url and url_env")
        if self.kind != "webhook" and self.url_env is None:
            raise ValueError(f"expected url_env: who has the URL of {self.kind.title()} may write there")
        return self


class EmailReceiver(MessageReceiver):
    """An SMTP server that takes a message. Without TLS only one on this machine, and without a login."""

    kind: Literal["email"]
    host: Name
    port: Annotated[int, Field(strict=True, ge=1, le=65535)] = 587
    tls: Literal["starttls", "implicit", "none"] = "starttls"
    sender: MailAddress
    recipients: Annotated[tuple[MailAddress, ...], Field(min_length=1)]
    username_env: VariableName | None = None
    password_env: VariableName | None = None
    ca_file_env: VariableName | None = None

    @model_validator(mode="after")
    def _nothing_in_clear(self) -> EmailReceiver:
        if (self.username_env is None) != (self.password_env is None):
            raise ValueError("expected username_env and password_env, or neither")
        if self.tls == "none" and (self.username_env is not None or not _is_here(self.host)):
            raise ValueError(
                f"tls: got none with host {self.host!r}, expected starttls or implicit: a message, and a password, goes"
                " without TLS to this machine alone (localhost), and without a login"
            )
        return self


class CommandReceiver(MessageReceiver):
    """A program of this machine. It gets the message as JSON on standard input, and ends with 0 if it took it."""

    kind: Literal["command"]
    command: Annotated[tuple[Name, ...], Field(min_length=1)]


AnyReceiver = Annotated[
    AlertmanagerReceiver | WebhookReceiver | EmailReceiver | CommandReceiver, Field(discriminator="kind")
]


class Alarms(Part):
    """The key `alarms` of the fleet file. `muted` are names of alarms that are right as they are. A heartbeat is a
    request after each run that ended well: whoever expects it raises an alarm when it does not come."""

    receivers: tuple[AnyReceiver, ...] = ()
    advice_usd_per_month: Positive | None = None
    muted: tuple[Name, ...] = ()
    heartbeat_url: Url | None = None
    heartbeat_url_env: VariableName | None = None

    @model_validator(mode="after")
    def _unique(self) -> Alarms:
        names = Counter(receiver.name for receiver in self.receivers)
        twice = [name for name, count in names.items() if count > 1]
        if twice:
            raise ValueError(f"receivers: {twice[0]!r} is there more than once, expected unique names")
        if self.heartbeat_url is not None and self.heartbeat_url_env is not None:
            raise ValueError("expected at most one of heartbeat_url and heartbeat_url_env")
        return self

    @property
    def are_sent(self) -> bool:
        """Whether anything leaves the machine."""
        return bool(self.receivers or self.heartbeat_url or self.heartbeat_url_env)


def unset_variables(alarms: Alarms, environ: Mapping[str, str]) -> Iterator[str]:
    """A line per environment variable that a receiver needs and that is not set here: a run may have it."""
    named = {f"alarms.receivers[{one.name}].{key}": getattr(one, key) for one in alarms.receivers for key in _envs(one)}
    named["alarms.heartbeat_url_env"] = alarms.heartbeat_url_env
    for key, name in named.items():
        if name is not None and not environ.get(name, "").strip():
            yield f"{key}: environment variable {shown_variable(name)} is not set here; without it nothing is sent"


def _envs(part: Part) -> list[str]:
    return [key for key in type(part).model_fields if key.endswith("_env")]


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
