"""How each kind of receiver is sent to. Each call is over within the receiver's seconds, or nearly so.

Whatever fails is a NotTaken with one line that holds no secret. Add here a kind of receiver. Keep out what it is sent
(`messages`, `alertmanager`) and when (`delivery`).
"""

from __future__ import annotations

import json
import os
import signal
import smtplib
import ssl
import subprocess
import tempfile
import time
from contextlib import suppress
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from typing import Any

from collectors.protocols import one_request
from collectors.samples import SourceError, printable, shown_variable
from collectors.secret_texts import Secrets
from pipelines.alarming.messages import Message
from pipelines.fleet.targets.alarm_rules import (
    Alarms,
    AlertmanagerReceiver,
    CommandReceiver,
    EmailReceiver,
    HttpReceiver,
    WebhookReceiver,
)

_LONGEST_REASON = 300


class NotTaken(Exception):
    """A receiver did not take what it was sent; the message is the reason, in one line."""


def send_heartbeat(alarms: Alarms, seconds: float) -> None:
    """Ask for the URL of the heartbeat."""
    url = alarms.heartbeat_url or _variable(alarms.heartbeat_url_env or "")
    _asked("GET", url, None, seconds, is_secret=alarms.heartbeat_url is None)


def send_alerts(receiver: AlertmanagerReceiver, alerts: list[dict[str, Any]]) -> None:
    """Post alerts to an Alertmanager."""
    url = f"{receiver.url.rstrip('/')}/api/v2/alerts"
    _asked("POST", url, alerts, receiver.timeout_seconds, receiver)


def send_message(receiver: WebhookReceiver | EmailReceiver | CommandReceiver, message: Message) -> None:
    """Send a message in the form that the receiver takes."""
    match receiver:
        case WebhookReceiver(url_env=name):
            forms = {"webhook": message.own_json, "slack": message.slack_json, "teams": message.teams_json}
            url = receiver.url or _variable(name or "")
            body = forms[receiver.kind]()
            _asked("POST", url, body, receiver.timeout_seconds, receiver, is_secret=name is not None)
        case EmailReceiver():
            _mail(receiver, message)
        case CommandReceiver():
            _run(receiver, message)


def _asked(
    method: str,
    url: str,
    body: object,
    seconds: float,
    receiver: HttpReceiver | None = None,
    *,
    is_secret: bool = False,
) -> None:
    logins = {} if receiver is None else {name: getattr(receiver, name, None) for name in one_request.LOGINS}
    payload = None if body is None else json.dumps(body, ensure_ascii=False).encode(errors="replace")
    try:
        one_request.send(method, url, payload, seconds, is_secret=is_secret, logins=logins)
    except SourceError as failure:
        raise NotTaken(str(failure)) from failure


def _mail(receiver: EmailReceiver, message: Message) -> None:
    """One mail over TLS, unless the server is this machine's."""
    mail = EmailMessage()
    mail["Subject"] = f"[wattledger] {message.title}"
    mail["From"] = receiver.sender
    mail["To"] = ", ".join(receiver.recipients)
    mail["Date"] = format_datetime(message.sent_at)
    mail["Message-ID"] = make_msgid("wattledger", receiver.sender.rpartition("@")[2])
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(message.text)
    secrets = Secrets()
    where, began = f"{receiver.host}:{receiver.port}", time.monotonic()
    try:
        user = None if receiver.username_env is None else _variable(receiver.username_env)
        password = None if receiver.password_env is None else _variable(receiver.password_env)
        secrets.add(password, user=user)
        ca_file = None if receiver.ca_file_env is None else _variable(receiver.ca_file_env)
        tls = None if receiver.tls == "none" else ssl.create_default_context(cafile=ca_file)
        with _connected(receiver, tls) as server:
            if receiver.tls == "starttls":
                server.starttls(context=tls)
            if user is not None:
                server.login(user, password or "")
            refused = server.send_message(mail, receiver.sender, receiver.recipients)
    except (OSError, smtplib.SMTPException, ValueError) as failure:
        if time.monotonic() - began >= receiver.timeout_seconds:
            raise NotTaken(f"{where}: no answer within {receiver.timeout_seconds:g} s") from failure
        raise NotTaken(_line(f"{where}: {secrets.masked(_reason(failure))}")) from failure
    if refused:
        raise NotTaken(_line(f"{where}: refused the recipients {', '.join(sorted(refused))}"))


def _connected(receiver: EmailReceiver, tls: ssl.SSLContext | None) -> smtplib.SMTP:
    seconds = receiver.timeout_seconds
    if receiver.tls == "implicit":
        return smtplib.SMTP_SSL(receiver.host, receiver.port, timeout=seconds, context=tls)
    return smtplib.SMTP(receiver.host, receiver.port, timeout=seconds)


def _reason(failure: Exception) -> str:
    """What a server answered, in its own words."""
    if isinstance(failure, smtplib.SMTPRecipientsRefused):
        return "; ".join(f"{to}: {code} {_decoded(text)}" for to, (code, text) in failure.recipients.items())
    if isinstance(failure, smtplib.SMTPResponseException):
        return f"{failure.smtp_code} {_decoded(failure.smtp_error)}"
    return str(failure) or type(failure).__name__


def _decoded(text: bytes | str) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def _run(receiver: CommandReceiver, message: Message) -> None:
    """Run a program with the message on its standard input; what it prints is shown where it fails."""
    program = receiver.command[0]
    with tempfile.TemporaryFile() as printed:
        try:
            process = subprocess.Popen(  # noqa: S603 (the operator's own program)
                receiver.command,
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as failure:
            raise NotTaken(_line(f"{program}: {failure.strerror or failure}")) from failure
        try:
            process.communicate(
                json.dumps(message.own_json(), ensure_ascii=False).encode(errors="replace"), receiver.timeout_seconds
            )
        except subprocess.TimeoutExpired:
            raise NotTaken(f"{program}: not ended within {receiver.timeout_seconds:g} s") from None
        finally:
            # What it left behind, too.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.returncode:
            printed.seek(0)
            first = printed.read(_LONGEST_REASON).decode("utf-8", "replace").strip().partition("\n")[0]
            raise NotTaken(_line(f"{program}: ended with {process.returncode}{f': {first}' if first else ''}"))


def _variable(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise NotTaken(f"environment variable {shown_variable(name)} is not set")
    return value


def _line(text: str) -> str:
    flat = printable(" ".join(text.split()))
    return flat if len(flat) <= _LONGEST_REASON else f"{flat[:_LONGEST_REASON]}…"
