"""Two months of a small fleet, run as an operator runs it.

One site in UTC, PUE 1. `chat` of team alpha holds 4 A100 (n-a), `mail` of team beta 2 (n-b), 2 are free (n-free). A
board of chat draws 360 W, from 16 October on 540 W; of mail 90 W, a free one 50 W: 1.72 kW in all, then 2.44 kW. chat
reads 20 and writes 10 tokens a second in September, 30 and 15 in October, 60 % of them for acme and 40 % for zeta; mail
none. Of 8 boards 6 are committed at 1 USD an hour, the others cost 2 USD: 10 USD an hour, 1.25 for each. Electricity
costs 0.1 USD/kWh, the month's peak 10 USD/kW, operations 744 USD a month. mail's power of the second half of 28 October
comes a night late, and September's operations turn out to be 754 USD after September was closed.

Add here what is planted. Keep out what a test expects of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import yaml

from pipelines.fleet.fleet_file import Fleet, load_fleet
from pipelines.fleet.places import PROJECT
from tests.books import environment, files_source, later_command, record
from tests.planted import ENERGY, INPUT, OUTPUT, WATTS, Samples, Series, board, pod, table_of, vllm

STEP = 300
HOUR = 3600
USAGE = ("prompt_tokens", "completion_tokens")
BRIDGE = """
select part, sum(before_usd), sum(calendar_usd), sum(coverage_usd), sum(price_usd), sum(volume_usd),
    sum(efficiency_usd), sum(idle_usd), sum(new_usd), sum(gone_usd), sum(adjustments_usd), sum(after_usd)
from finance.bridge where is_of_whole_months group by part having sum(after_usd) <> 0 order by part
"""


def at(text: str) -> float:
    """Unix seconds of `10-28 12:00` in 2026, UTC."""
    return datetime.fromisoformat(f"2026-{text}:00+00:00").timestamp()


FIRST, LAST = at("08-31 23:00"), at("11-01 01:00")
OCTOBER, BUSIER = at("10-01 00:00"), at("10-16 00:00")
LATE = (at("10-28 12:00"), at("10-29 00:00"))


def rising(per_second: float, then_per_second: float, then: float) -> Samples:
    """A counter that rises faster from `then` on."""
    total, found = 1e6, []
    for second in range(int(FIRST), int(LAST) + 1, STEP):
        found.append((float(second), total))
        total += STEP * (then_per_second if second >= then else per_second)
    return found


def steady(value: float) -> Samples:
    return [(float(second), value) for second in range(int(FIRST), int(LAST) + 1, STEP)]


def mail_watts(number: int) -> Series:
    return WATTS, board(f"GPU-b{number}", "n-b", **pod("mail-0")), steady(90)


def series() -> Iterator[Series]:
    for number in range(4):
        yield ENERGY, board(f"GPU-a{number}", "n-a", **pod("chat-0")), rising(360_000, 540_000, BUSIER)
    for number in range(2):
        yield (
            ENERGY,
            board(f"GPU-c{number}", "n-free", pod="", namespace="", container=""),
            rising(50_000, 50_000, OCTOBER),
        )
    yield INPUT, vllm("chat-0", "chat"), rising(20, 30, OCTOBER)
    yield OUTPUT, vllm("chat-0", "chat"), rising(10, 15, OCTOBER)
    yield INPUT, vllm("mail-0", "mail"), steady(0)
    yield OUTPUT, vllm("mail-0", "mail"), steady(0)


FLEET = {
    "fleet": "months",
    "period": {"start": "2026-09-01", "end": "2026-11-01"},
    "grid_seconds": 300,
    "sources": [files_source("cluster", "recorded/*.parquet", interval_seconds=STEP)],
    "sites": [
        {
            "name": "west",
            "zone": "unknown",
            "pue": 1.0,
            "tariff": [{"usd_per_kwh": 0.1}],
            "demand_charges": [{"usd_per_kw_month": 10.0}],
            "operations": [{"usd_per_month": 744.0}],
        }
    ],
    "nodes": [{"name": name, "site": "west", "host_watts": 0} for name in ("n-a", "n-b", "n-free")],
    "devices": [{"device_uuid": f"GPU-c{number}", "node": "n-free"} for number in range(2)],
    "engines": [
        {"engine": "llm/chat-0", "team": "alpha"},
        {"engine": "llm/mail-0", "team": "beta"},
    ],
    "cost_rates": [{"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2.0, "source": "contract 1"}],
    "commitments": [
        {"commitment": "c1", "site": "west", "device_type": "a100-sxm4-80gb", "gpus": 6, "usd_per_gpu_hour": 1.0,
            "valid_from": "2026-01-01", "valid_to": "2027-01-01"},
    ],
    "requests": [
        {"name": "edge", "kind": "access_log", "path": "edge.jsonl",
            "columns": {"duration_seconds": "seconds", "status": "status", "tenant": "tenant"}},
    ],
    "budgets": [{"budget": "alpha", "team": "alpha", "usd_per_month": 4000, "valid_from": "2026-09-01"}],
    "reporting_currency": {
        "currency": "EUR",
        "rates": [{"month": "2026-09", "usd_per_unit": 1.0}, {"month": "2026-10", "usd_per_unit": 1.25}],
    },
}  # fmt: skip


@dataclass
class Nights:
    """The fleet, what its runs printed, and what was published before September was corrected."""

    folder: Path
    printed: dict[str, str] = field(default_factory=dict)
    frozen: bytes = b""
    bridge: list[tuple] = field(default_factory=list)

    @property
    def fleet(self) -> Fleet:
        return load_fleet(self.folder / "fleet.yaml", environment(self.folder / "data"))

    def focus(self, month: str) -> Path:
        """The FOCUS file of a month."""
        return self.fleet.published / "latest" / "focus" / f"cost_and_usage_{month}.csv"

    def run(self, name: str, *options: str) -> None:
        """A run of the command line: nothing is refused, nothing fails."""
        done = later_command(self.folder / "fleet.yaml", self.folder / "data", *options)
        assert done.returncode == 0, done.stdout + done.stderr
        self.printed[name] = done.stdout

    def ask(self, *words: str) -> str:
        """Another command."""
        line = [sys.executable, "-m", "pipelines", *words, "--fleet", str(self.folder / "fleet.yaml")]
        done = subprocess.run(
            line,
            env=environment(self.folder / "data"),
            cwd=PROJECT,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def query(self, sql: str) -> list[tuple]:
        with closing(duckdb.connect(str(self.fleet.snapshot), read_only=True)) as connection:
            return connection.execute(sql).fetchall()

    def state(self, **changes: object) -> None:
        (self.folder / "fleet.yaml").write_text(yaml.safe_dump({**FLEET, **changes}, sort_keys=False), encoding="utf-8")


def run_nights(folder: Path) -> Nights:
    """September and October until the 28th in one run, September closed, then the last nights one by one."""
    made = Nights(folder)
    made.state()
    write_requests(made.folder / "edge.jsonl")
    record(table_of(list(series())), made.folder / "recorded", "engines")
    late, in_time = [], []
    for number in range(2):
        metric, labels, samples = mail_watts(number)
        in_time.append((metric, labels, [sample for sample in samples if not LATE[0] <= sample[0] < LATE[1]]))
        late.append((metric, labels, [sample for sample in samples if LATE[0] <= sample[0] < LATE[1]]))
    record(table_of(in_time), made.folder / "recorded", "mail")
    made.run("first", "--end", "2026-10-29")
    made.printed["close September"] = made.ask("close", "2026-09")
    made.frozen = made.focus("2026-09").read_bytes()
    made.run("a night", "--start", "2026-10-29", "--end", "2026-10-30")
    record(table_of(late), made.folder / "recorded", "mail_late")
    made.run("late", "--start", "2026-10-28", "--end", "2026-11-01")
    made.bridge = made.query(BRIDGE)
    corrected = [
        {"usd_per_month": 754.0, "valid_from": "2026-09-01", "valid_to": "2026-10-01"},
        {"usd_per_month": 744.0, "valid_from": "2026-10-01"},
    ]
    made.state(sites=[{**FLEET["sites"][0], "operations": corrected}])
    made.run("corrected", "--rebuild", "--start", "2026-09-30", "--end", "2026-10-01")
    made.printed["close October"] = made.ask("close", "2026-10")
    return made


def write_requests(path: Path) -> None:
    """Each hour one request of acme and one of zeta."""
    lines = []
    for hour in range(int(at("09-01 00:00")), int(at("11-01 00:00")), HOUR):
        tokens = 10 if hour < OCTOBER else 15
        for tenant, share in (("acme", 0.6), ("zeta", 0.4)):
            usage = {name: round(rate * HOUR * share) for name, rate in zip(USAGE, (2 * tokens, tokens), strict=True)}
            created = datetime.fromtimestamp(hour + 60, UTC).isoformat()
            made = {"id": f"{tenant}-{hour}", "created": created, "seconds": 60, "status": 200, "model": "chat"}
            lines.append(json.dumps({**made, "tenant": tenant, "usage": usage}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
