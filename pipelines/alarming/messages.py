"""What a receiver of messages gets: one message with what is new, what is over and what lasts.

Add here another form of a message. Keep out how it is sent (`delivery`). Texts of others, such as the names of models,
are in fields that no receiver reads as markup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from collectors.samples import printable
from pipelines.alarming.alarm import SEVERITIES, Alarm

VERSION = 1
# Alarms of each sort that a message shows, and characters of one: Slack refuses texts of 3,000, Teams cards of 28 KB.
SHOWN = 15
SHOWN_CHARACTERS = 900
_CARD = "application/vnd.microsoft.card.adaptive"

Sort = Literal["new", "over", "lasting", "test"]


@dataclass(frozen=True)
class Message:
    """`lasting` is empty but for the first message of a date. `list_command` prints what lasts."""

    fleet: str
    is_synthetic: bool
    sent_at: datetime
    list_command: str
    new: Sequence[Alarm] = ()
    over: Sequence[Alarm] = ()
    lasting: Sequence[Alarm] = ()
    test: Sequence[Alarm] = ()

    @property
    def title(self) -> str:
        """One line: `fleet mine: 2 new alarms (1 error, 1 warning), 1 is over`."""
        parts = []
        if self.test:
            parts.append("a test of its alarms")
        if self.new:
            counts = Counter(alarm.severity for alarm in self.new)
            each = ", ".join(_many(counts[severity], severity) for severity in SEVERITIES if counts[severity])
            parts.append(f"{_many(len(self.new), 'new alarm')} ({each})")
        if self.over:
            parts.append(f"{_many(len(self.over), 'alarm')} over")
        if self.lasting:
            parts.append(f"{_many(len(self.lasting), 'alarm')} since earlier")
        label = " (synthetic)" if self.is_synthetic else ""
        return f"fleet {self.fleet}{label}: {', '.join(parts)}"

    def sections(self) -> Iterator[str]:
        """The text of each alarm, and what of each sort is not shown."""
        sorts: tuple[tuple[Sort, Sequence[Alarm]], ...] = (
            ("test", self.test),
            ("new", self.new),
            ("over", self.over),
            ("lasting", self.lasting),
        )
        for sort, alarms in sorts:
            for alarm in alarms[:SHOWN]:
                yield _text(sort, alarm)
            if len(alarms) > SHOWN:
                yield f"… and {len(alarms) - SHOWN:,} more {_WORDS[sort].lower()}: {self.list_command}"

    @property
    def text(self) -> str:
        """The message as plain text."""
        return "\n\n".join([self.title, *self.sections()]) + "\n"

    def own_json(self) -> dict[str, Any]:
        """The message for programs, with all alarms whole."""
        sorts = (("test", self.test), ("new", self.new), ("over", self.over), ("lasting", self.lasting))
        return {
            "version": VERSION,
            "fleet": self.fleet,
            "is_synthetic": self.is_synthetic,
            "sent_at": self.sent_at.isoformat(timespec="seconds"),
            "title": self.title,
            "text": self.text,
            "alarms": [{"status": sort, **alarm.to_json()} for sort, alarms in sorts for alarm in alarms],
        }

    def slack_json(self) -> dict[str, Any]:
        """The message as an incoming webhook of Slack takes it."""
        title = {"type": "plain_text", "text": self.title[:150], "emoji": False}
        blocks: list[dict[str, Any]] = [{"type": "header", "text": title}]
        for section in self.sections():
            blocks.append({"type": "section", "text": {"type": "plain_text", "text": section, "emoji": False}})
        # The text is what a notification shows; there, these three begin markup.
        plain = self.title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return {"text": plain, "blocks": blocks}

    def teams_json(self) -> dict[str, Any]:
        """The message as the workflow "When a Teams webhook request is received" takes it: an Adaptive Card. A TextRun
        has no markup."""

        def run(text: str, **style: Any) -> dict[str, Any]:
            lines = text.split("\n")
            return {"type": "RichTextBlock", "inlines": [
                {"type": "TextRun", "text": line + ("\n" if n + 1 < len(lines) else ""), **(style if n == 0 else {})}
                for n, line in enumerate(lines)
            ]}  # fmt: skip

        card = {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard",
            "version": "1.4",
            "msteams": {"width": "Full"},
            "body": [
                run(self.title, weight="Bolder", size="Medium"),
                *(run(one, weight="Bolder") for one in self.sections()),
            ],
        }
        return {"type": "message", "attachments": [{"contentType": _CARD, "contentUrl": None, "content": card}]}


_WORDS: dict[Sort, str] = {"new": "NEW", "over": "OVER", "lasting": "SINCE EARLIER", "test": "TEST"}


def described(alarm: Alarm, is_whole: bool = True) -> str:
    """One alarm as text: in full, or without the things that it is about."""
    lines = [f"{alarm.severity}: {alarm.what}"]
    if is_whole:
        lines += [f"  {line.strip()}" for line in alarm.which.splitlines() if line.strip()]
    facts = "; ".join(filter(None, [f"since {_moment(alarm.since)}" if alarm.since else "", alarm.how_much]))
    if facts:
        lines.append(f"  {facts}")
    text = "\n".join(printable(line) for line in lines)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def what_to_do(alarm: Alarm) -> str:
    """The last line of an alarm, which is never cut off; empty without a remedy."""
    return f"\n  What to do: {printable(alarm.remedy)}" if alarm.remedy else ""


def _text(sort: Sort, alarm: Alarm) -> str:
    """One alarm: in full where it is new, without its things where it lasts, and without a remedy where it is over."""
    text = described(alarm, is_whole=sort in ("new", "test"))
    return f"{_WORDS[sort]} {text}{what_to_do(alarm) if sort != 'over' else ''}"


def _moment(at: str) -> str:
    moment = datetime.fromisoformat(at)
    return f"{moment:%Y-%m-%d}" if (moment.hour, moment.minute) == (0, 0) else f"{moment:%Y-%m-%d %H:%M} UTC"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
