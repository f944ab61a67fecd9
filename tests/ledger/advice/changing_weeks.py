"""Five weeks of a small fleet, booked week by week, in which three deployments change and one only seems to.

A site in UTC, PUE 1.2, 0.1 USD/kWh, every board an A100 at 2 USD an hour. From the first day of the fourth week on:

- `spare` (2 boards, 90 W each, no token ever) is off; its boards stay, free, at 50 W. It was advised.
- `pair` has one engine of one board instead of two: it was advised, and requests wait in half of the intervals since.
  A board draws 100 W and 4 J a token. The two share 15 tokens a second, and 40 for an hour of each of the first three
  Tuesdays, which shows what an engine can do.
- `mail` (2 boards) gets a power limit of 300 W, which was not advised. It draws 60 W less, and serves half as much
  again from that day on. It draws 200 W and 8 J a token, of 10 tokens a second at night and 20 from 8:00 to 20:00, each
  day by another factor.

The free boards of `spare` are listed in the fleet file. That which `pair` left is not, so it is not known who holds
it; it draws 50 W as well. `auto` holds a second board from 6:00 to 18:00 of each day. One board of `spare` is not
held on the tenth day.
Each day's watts are off by some watts (SCATTER), so that not everything is exact.

Add here what is planted. Keep out what a test expects of it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from pipelines.publishing import publication
from pipelines.warehouse import due_dates
from tests.books import Book
from tests.planted import ENERGY, INPUT, OUTPUT, Samples, Series, board, plant, pod, vllm

FIRST = date(2026, 8, 31)  # a Monday
DAYS, CHANGED = 35, 21
STEP, DAY_SECONDS, HOUR = 300, 86_400, 3600
WAITING, RUNNING, LIMIT = "vllm:num_requests_waiting", "vllm:num_requests_running", "DCGM_FI_DEV_POWER_MGMT_LIMIT"
PEAK_HOUR = 36  # of a week: Tuesday 12:00
SCATTER = (1.0, -2.0, 2.5, -1.5)  # W of a board, by day
FACTORS = (0.8, 1.0, 1.2, 0.9, 1.1)  # of mail's tokens, by day
START = datetime(FIRST.year, FIRST.month, FIRST.day, tzinfo=UTC).timestamp()
TIMES = range(-HOUR, DAYS * DAY_SECONDS + HOUR, STEP)
Rate = Callable[[int], float]
Holder = Callable[[int], str | None]


def is_after(second: int) -> bool:
    return second >= CHANGED * DAY_SECONDS


def hour(second: int) -> int:
    return second // HOUR % 24


def scatter(second: int) -> float:
    return SCATTER[second // DAY_SECONDS % len(SCATTER)]


def mail_rate(second: int) -> float:
    rate = 20 if 8 <= hour(second) < 20 else 10
    return rate * FACTORS[second // DAY_SECONDS % len(FACTORS)] * (1.5 if is_after(second) else 1.0)


def pair_rate(number: int) -> Rate:
    def rate(second: int) -> float:
        if is_after(second):
            return 15.0 if number == 0 else 0.0
        return 20.0 if second // HOUR % 168 == PEAK_HOUR else 7.5

    return rate


def counted(per_second: Rate, times: range | list[int] = TIMES) -> Samples:
    total, found = 1e6, []
    for second in times:
        found.append((START + second, total))
        total += STEP * per_second(second)
    return found


def metered(uuid: str, node: str, watts: Rate, holder: Holder) -> list[Series]:
    """A board's counter, a series for each pod that held it."""
    by_pod: dict[str | None, Samples] = {}
    for (at, value), second in zip(
        counted(lambda second: 1000 * (watts(second) + scatter(second))), TIMES, strict=True
    ):
        by_pod.setdefault(holder(second), []).append((at, value))
    labels = {name: pod(name) if name else {"namespace": "", "pod": "", "container": ""} for name in by_pod}
    return [(ENERGY, board(uuid, node, **labels[name]), samples) for name, samples in by_pod.items()]


def engine(name: str, model: str, rate: Rate, is_there: Callable[[int], bool] = lambda second: True) -> list[Series]:
    times = [second for second in TIMES if is_there(second)]
    waits = [float(model == "pair" and is_after(second) and second // STEP % 2) for second in times]
    gauges = [(WAITING, [3 * one for one in waits]), (RUNNING, [1.0 if rate(second) else 0.0 for second in times])]
    return [
        (INPUT, vllm(name, model), counted(rate, times)),
        (OUTPUT, vllm(name, model), counted(rate, times)),
        *(
            (metric, vllm(name, model), [(START + s, v) for s, v in zip(times, values, strict=True)])
            for metric, values in gauges
        ),
    ]


def series() -> list[Series]:
    found: list[Series] = []
    for number in range(2):
        drained = (9 * DAY_SECONDS, 10 * DAY_SECONDS) if number else (0, 0)

        def of_spare(second: int, drained: tuple[int, int] = drained) -> str | None:
            return None if is_after(second) or drained[0] <= second < drained[1] else "spare-0"

        found += metered(
            f"GPU-s{number}", "n-spare", lambda second, of=of_spare: 90.0 if of(second) else 50.0, of_spare
        )
        rate = pair_rate(number)

        def of_pair(second: int, number: int = number) -> str | None:
            return None if number and is_after(second) else f"pair-{number}"

        found += metered(
            f"GPU-p{number}",
            f"n-pair{number}",
            lambda second, of=of_pair, rate=rate: 100 + 4 * rate(second) if of(second) else 50.0,
            of_pair,
        )
        found += engine(f"pair-{number}", "pair", rate, lambda second, of=of_pair: of(second) is not None)
        found += metered(
            f"GPU-m{number}",
            "n-mail",
            lambda second: 100 + 4 * mail_rate(second) - (30 if is_after(second) else 0),
            lambda second: "mail-0",
        )
        limits = [(START + second, 300.0 if is_after(second) else 400.0) for second in TIMES]
        found.append((LIMIT, board(f"GPU-m{number}", "n-mail", **pod("mail-0")), limits))

        def of_auto(second: int, number: int = number) -> str | None:
            return None if number and not 6 <= hour(second) < 18 else f"auto-{number}"

        found += metered(f"GPU-a{number}", "n-auto", lambda second: 120.0, of_auto)
        found += engine(f"auto-{number}", "auto", lambda second: 5.0, lambda second, of=of_auto: of(second) is not None)
    found += engine("spare-0", "spare", lambda second: 0.0, lambda second: not is_after(second))
    found += engine("mail-0", "mail", mail_rate)
    return found


def run_weeks(folder: Path) -> Book:
    """The fleet, landed, booked, advised and published after each week."""
    book = plant(
        folder,
        series(),
        fleet="weeks",
        grid_seconds=STEP,
        period={"start": FIRST, "end": FIRST + timedelta(days=DAYS)},
        devices=[{"device_uuid": f"GPU-s{number}", "node": "n-spare"} for number in range(2)],
        nodes=[{"name": name, "site": "west", "host_watts": 0} for name in NODES],
        cost_rates=[{"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2.0, "source": "contract"}],
    )
    for week in range(DAYS // 7):
        start, end = book.run(*(FIRST + timedelta(days=7 * n) for n in (week, week + 1)))
        publication.publish(book.fleet, start, end)
        with book.connection() as connection:
            due_dates.published(connection, start, end)
    return book


NODES = ("n-spare", "n-pair0", "n-pair1", "n-mail", "n-auto")
