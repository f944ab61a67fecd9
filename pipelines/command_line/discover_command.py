"""The command `discover`: what a place holds, what is doubtful, a fleet file, and first numbers.

Add here what a person is shown or asked. Keep out what is found and what it means: that is `pipelines.discovery`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from collectors.durable_files import opened
from collectors.probes.unknown_server import UnknownServer
from collectors.samples import SourceError, printable
from pipelines.command_line import discover_folder
from pipelines.command_line.text_tables import RATIO, TEXT, table
from pipelines.discovery import fleet_text
from pipelines.discovery.doubts import Doubt, canonical_types, doubts
from pipelines.discovery.fleet_text import Answers
from pipelines.discovery.questions import asked, unknown
from pipelines.discovery.survey import Place, Survey, survey
from pipelines.fleet.catalog import known_metrics
from pipelines.fleet.fleet_file import load_fleet
from pipelines.fleet.sources import SpoolSource
from pipelines.fleet.values import root_of_an_api
from pipelines.named_figures import figures_in_doubt, unplaced_hosts
from pipelines.named_figures.unplaced_hosts import UnplacedMeter
from pipelines.warehouse.refusals import QuestionError

SHOWN = 8
_ADDRESS = re.compile(r"[\w.-]+:\d+(/.*)?")


def discover(options: argparse.Namespace) -> int:
    """Look at the place that the options name; returns the exit status. QuestionError where an option is wrong."""
    parts = urlsplit(options.place)
    scheme, path = parts.scheme, parts.path
    if _ADDRESS.fullmatch(options.place) and not Path(options.place).exists():
        raise QuestionError(f"got {options.place!r}, expected http://{options.place}, or https://")
    if scheme in ("http", "https"):
        return _of_a_page(options) if path.rstrip("/").endswith("/metrics") else _of_a_server(options)
    if _is_spool(options.place):
        return _of_a_spool(options)
    if "://" in options.place:
        raise QuestionError(
            f"got {options.place!r}, expected http://HOST:PORT, a metrics page (http://HOST:PORT/metrics), a folder of"
            " logs, or the spool of an agent"
        )
    return _of_a_folder(options)


def _of_a_folder(options: argparse.Namespace) -> int:
    path = Path(options.place)
    found, out = discover_folder.look(path, _name(options), options.out)
    if options.json:
        print(json.dumps([asdict(file) for file in found.files], indent=2, default=str))
        return 0
    discover_folder.show(found)
    out.write_text(discover_folder.text(_name(options), found, out), encoding="utf-8")
    load_fleet(out)
    return _ended(out)


def _of_a_server(options: argparse.Namespace) -> int:
    try:
        root_of_an_api(options.place)
    except ValueError as wrong:
        raise QuestionError(f"got {options.place!r}, {wrong}") from None
    matchers, headers, auth = tuple(options.matcher), _headers(options.header), _auth(options)
    server = UnknownServer(options.place, _at(options), matchers, headers=headers, **auth)
    stated = {"matchers": list(matchers), "auth": auth, "headers": headers}
    source = {"kind": "prometheus", "url": options.place, **{key: value for key, value in stated.items() if value}}

    def place() -> Place:
        """The server as it is now; where what is known of it ended earlier, as it was then."""
        if options.at is None:
            server.look_back(known_metrics())
        return server

    try:
        return _of_a_place(options, place, source, _file(options, Path.cwd()))
    finally:
        server.close()


def _of_a_page(options: argparse.Namespace) -> int:
    """A page shows what an agent would sample: it has no history to book."""
    from collectors.probes.unknown_page import unknown_page  # noqa: PLC0415 (most look at a server)

    _refuse_of_servers(options)
    out, auth = _file(options, Path.cwd()), _auth(options)
    made = _of_a_place(
        options, lambda: unknown_page(options.place, _at(options), **auth), {"kind": "spool"}, out, has_history=False
    )
    if made == 0 and not options.json:
        words = [f"--{key.replace('_', '-')} {name}" for key, name in auth.items()]
        agent = " ".join([f"wattledger-agent agent --page {options.place}", *words])
        spool = next(one for one in load_fleet(out).sources if isinstance(one, SpoolSource))
        print(f"before: {agent} --spool {spool.path}")
    return made


def _of_a_spool(options: argparse.Namespace) -> int:
    from collectors.probes.unknown_spool import unknown_spool  # noqa: PLC0415 (most look at a server)

    _refuse_of_servers(options)
    is_remote = "://" in options.place
    path = options.place if is_remote else str(Path(options.place).absolute())
    out = _file(options, Path.cwd() if is_remote else Path(path).parent)
    if not is_remote and not Path(path).is_relative_to(out.absolute().parent):
        raise QuestionError(
            f"{out}: a fleet file reads folders beside it and below, and {path} is elsewhere: write it there (--out)"
        )
    return _of_a_place(options, lambda: unknown_spool(path, _at(options)), {"kind": "spool", "path": path}, out)


def _of_a_place(
    options: argparse.Namespace,
    place: Callable[[], Place],
    source: Mapping[str, Any],
    out: Path,
    has_history: bool = True,
) -> int:
    """What is there, what is doubtful, a fleet file with this source, and first numbers where there is a history."""
    if out.exists() and not options.json:
        raise QuestionError(f"{out} is there already: name another file with --out, or remove it")
    try:
        found = survey(place(), _progress)
    except SourceError as failure:
        print(_unreachable(failure, options), file=sys.stderr)
        return 1
    _progress("")
    doubtful = doubts(found)
    if options.json:
        print(json.dumps(_for_programs(found, doubtful), indent=2))
        return 0
    print("\n".join(_found(found)))
    if not (found.intervals if has_history else found.series):
        print(f"\n{_nothing(found)}: no fleet file was written.", file=sys.stderr)
        return 1
    print("\n" + "\n".join(_listed("What is doubtful", [one.line for one in doubtful] or ["nothing that labels show"])))
    asks = not options.yes and sys.stdin.isatty()
    if not asks:
        print("\n" + "\n".join(_listed("What only you know (to complete in the file)", unknown(found))))
    answers = asked(found) if asks else Answers()

    def write(placing: Sequence[str] = ()) -> None:
        text = fleet_text.fleet_text(_name(options), source, found, doubtful, answers, placing=placing)
        out.write_text(text, encoding="utf-8")

    write()
    if has_history and (unplaced := _first_numbers(out, found.looked_at)):
        write(unplaced_hosts.block(unplaced))
    return _ended(out)


def _is_spool(place: str) -> bool:
    if "://" not in place and not Path(place).is_dir():
        return False
    from collectors.probes.unknown_spool import is_spool  # noqa: PLC0415 (it reads Parquet)

    try:
        return is_spool(place)
    except ImportError as missing:
        raise QuestionError(f"{place}: {missing} (pip install 'wattledger[object-store]')") from None
    except (OSError, TimeoutError, ValueError) as failure:
        raise QuestionError(f"{place}: {type(failure).__name__}: {failure}") from None


def _at(options: argparse.Namespace) -> datetime:
    at: datetime | None = options.at
    return at or datetime.now(UTC)


def _auth(options: argparse.Namespace) -> dict[str, str]:
    return {key: value for key in ("bearer_env", "username_env", "password_env") if (value := getattr(options, key))}


def _file(options: argparse.Namespace, folder: Path) -> Path:
    out: Path | None = options.out
    return out or folder / f"{_name(options)}.yaml"


def _refuse_of_servers(options: argparse.Namespace) -> None:
    if options.matcher or options.header:
        raise QuestionError(f"--matcher and --header are for servers with Prometheus' API; got {options.place!r}")


def _ended(out: Path) -> int:
    from pipelines.fleet.fleet_schema import fleet_schema  # noqa: PLC0415 (it reads every key)

    schema = out.parent / fleet_text.SCHEMA
    schema.write_text(json.dumps(fleet_schema(), indent=2), encoding="utf-8")
    opened(out, schema)
    print(f"\nwritten: {out}")
    print(f"next: wattledger check --fleet {out}, then wattledger run --fleet {out}")
    return 0


def _found(found: Survey) -> Iterator[str]:
    boards, engines = found.boards(), found.engines()
    version = f" {found.product.version}" if found.product.version else ""
    yield f"{found.url}: {found.product.name}{version}"
    days = {None: "", 0: "; none older than a day"}
    since = days.get(found.oldest_days, f"; samples of the last {found.oldest_days} days")
    kept = f"; keeps {found.product.retention}" if found.product.retention else ""
    newest = "none" if found.newest_at is None else f"{found.newest_at:%Y-%m-%d %H:%M:%S} UTC"
    yield f"  newest sample  {newest}{since}{kept}"
    for kind, metrics in sorted(found.exporters().items()):
        series = sum(1 for one in found.series if one.metric.source_kind == kind)
        seconds = [found.intervals[m.metric] for m in metrics if m.metric in found.intervals]
        every = f", every {seconds[0]:g} s" if seconds else ""
        yield f"  {kind:<20} {series:,} series of power, energy and tokens in {len(metrics)} metrics{every}"
    canonical = canonical_types({board.device_type for board in boards.values() if board.device_type})
    types = Counter(canonical.get(b.device_type or "") or b.device_type or "without a type" for b in boards.values())
    yield f"  nodes                {len(found.nodes()):,}: {_some(sorted(found.nodes()))}"
    yield f"  boards               {len(boards):,}: {_some([f'{count} {kind}' for kind, count in types.most_common()])}"
    for scope, kinds in sorted(found.meters().items()):
        yield f"  meters of a {scope:<8} {_some([f'{count} by {kind}' for kind, count in kinds.most_common()])}"
    for level in ("engine", "frontend", "gateway"):
        of_level = engines if level == "engine" else found.engines(level)
        if of_level:
            counted = Counter(one.kind for one in of_level.values()).most_common()
            yield f"  {level + 's':<20} {len(of_level):,}: {_some([f'{count} {kind}' for kind, count in counted])}"
    models = Counter(one.model for one in engines.values() if one.model)
    yield f"  models               {len(models):,}: {_some([name for name, _ in models.most_common()])}"


def _nothing(found: Survey) -> str:
    if found.metrics:
        return f"What is known here has no two samples in the ten minutes before {found.at:%Y-%m-%d %H:%M} UTC"
    return "Nothing here is known as power or tokens"


def _first_numbers(out: Path, at: datetime) -> list[UnplacedMeter]:
    """Print them; returns the wall meters that no host is known for."""
    from pipelines.booking.dbt_run import DbtError  # noqa: PLC0415 (dbt takes a second)
    from pipelines.discovery.first_numbers import first_numbers  # noqa: PLC0415

    try:
        made = first_numbers(load_fleet(out), at, _progress)
    except (SourceError, DbtError) as failure:
        print(f"\nfirst numbers could not be made: {failure}", file=sys.stderr)
        return []
    _progress("")
    print(f"\nFirst numbers, {made.window.start_at:%Y-%m-%d %H:%M} to {made.window.end_at:%H:%M} UTC")
    columns = {
        "model": TEXT, "meters": TEXT, "boards": 1, "mean W": 1, "J/total token": 4, "J/output token": 4,
        "idle energy": RATIO, "output tokens": 0,
    }  # fmt: skip
    marks = [figures_in_doubt.marks(one.doubt, columns) for one in made.models]
    print(table(columns, [one[:-1] for one in made.models], marks) or "no power and no tokens in these hours")
    if in_doubt := {one.model: one.doubt for one in made.models if one.doubt}:
        print(printable(f"? {figures_in_doubt.note(in_doubt, is_booked=False)}"))
    if made.unplaced:
        watts = f"{sum(one.mean_watts or 0 for one in made.unplaced):,.1f} W"
        lines = [unplaced_hosts.sentence(made.unplaced, watts), *unplaced_hosts.block(made.unplaced)]
        print("\n".join(map(printable, lines)))
    for problem in made.problems:
        print(printable(problem), file=sys.stderr)
    return made.unplaced


def _for_programs(found: Survey, doubtful: Sequence[Doubt]) -> dict[str, object]:
    return {
        "url": found.url,
        "product": found.product._asdict(),
        "newest_at": found.newest_at.isoformat() if found.newest_at else None,
        "oldest_days": found.oldest_days,
        "intervals_seconds": dict(found.intervals),
        "boards": [board._asdict() for board in found.boards().values()],
        "engines": [engine._asdict() for engine in found.engines().values()],
        "nodes": sorted(found.nodes()),
        "unread_metrics": list(found.unread),
        "doubts": [doubt._asdict() for doubt in doubtful],
    }


def _name(options: argparse.Namespace) -> str:
    host = options.name or (urlsplit(options.place).hostname or "").partition(".")[0] or Path(options.place).stem
    if host.isdigit() or not host:
        return "fleet"
    return re.sub(r"[^a-z0-9_-]+", "-", host.casefold()).strip("-") or "fleet"


def _headers(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise QuestionError(f"--header: got {text!r}, expected NAME: VALUE such as 'X-Scope-OrgID: team'")
        found[name.strip()] = value.strip()
    return found


def _unreachable(failure: SourceError, options: argparse.Namespace) -> str:
    given = options.bearer_env or options.password_env
    remedy = {
        401: f" It refuses what is in {given}."
        if given
        else " It asks for a login: --bearer-env NAME names the variable that holds a token.",
        403: " It refuses this login, or this path.",
        404: " Is this the root of the API? It is the part before /api/v1. A metrics page ends in /metrics.",
    }.get(failure.status or 0, "")
    return printable(f"{failure}{'' if str(failure).endswith('.') else '.'}{remedy}")


def _listed(title: str, lines: Sequence[str]) -> Iterator[str]:
    yield title
    yield from (printable(f"  - {line}") for line in lines)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return printable(", ".join(names[:SHOWN]) + more) or "none"


def _progress(line: str) -> None:
    """What is being done, in one line that the next one replaces; nothing where no person looks."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{'  ' if line else ''}{printable(line)[:100]}")
        sys.stderr.flush()
