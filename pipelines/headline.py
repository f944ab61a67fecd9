"""The headline as text: per model what a token cost, from the published marts, as `make run` prints it.

Add a column here when a newcomer should see it first. Keep out formulas: ratios here are sums over sums of columns that
the marts already hold.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from pipelines import warehouse
from pipelines.fleet import Fleet
from pipelines.publication import DATABASE

MISSING = "–"

_MODELS = """
select model,
    sum(energy_joules) / 3.6e6 as energy_kwh,
    sum(idle_joules) / nullif(sum(energy_joules), 0) as idle_ratio,
    -- Idle days count: they have joules and no tokens.
    sum(matched_joules) / nullif(sum(matched_total_tokens), 0) as joules_per_total_token,
    sum(matched_joules) / nullif(sum(matched_output_tokens), 0) as joules_per_output_token,
    sum(location_gco2e) / 1000 as location_kgco2e,
    sum(fully_loaded_cost_usd) as fully_loaded_cost_usd,
    sum(matched_fully_loaded_cost_usd) * 1e6 / nullif(sum(matched_output_tokens), 0)
        as fully_loaded_cost_usd_per_output_mtok
from marts.model_daily
group by model
order by starts_with(model, '__'), energy_kwh desc
"""

_WINDOWS = """
select windows.window_id, windows.mean_watts,
    windows.joules_per_total_token, models.joules_per_total_token as period_joules_per_total_token,
    windows.joules_per_output_token, models.joules_per_output_token as period_joules_per_output_token,
    windows.reason_code
from marts.run_windows as windows left join models using (model)
order by windows.start_at, windows.window_id
"""


def headline(fleet: Fleet) -> str:
    """Two tables, per model and per run window, over everything that is published. FileNotFoundError before that."""
    path = fleet.published / DATABASE
    if not path.exists():
        raise FileNotFoundError(f"nothing is published for fleet {fleet.fleet} yet: run `make run` first")
    with closing(warehouse.connect(path, read_only=True)) as connection:
        first, last = connection.execute("select min(date), max(date) from marts.model_daily").fetchall()[0]
        label = "SYNTHETIC telemetry: nothing here was measured" if fleet.synthetic else "measured telemetry"
        lines = [
            f"fleet {fleet.fleet}, {first} to {last}: {label}",
            "",
            *_table(
                ["model", "J/total token", "J/output token", "idle share", "kWh", "kgCO2e", "USD", "USD/Mtok output"],
                [
                    [
                        model,
                        _number(total, 4),
                        _number(output, 4),
                        MISSING if idle is None else f"{idle:.1%}",
                        _number(kwh, 1),
                        _number(kgco2e, 1),
                        _number(usd, 2),
                        _number(usd_per_mtok, 2),
                    ]
                    for model, kwh, idle, total, output, kgco2e, usd, usd_per_mtok in connection.execute(
                        _MODELS
                    ).fetchall()
                ],
            ),
        ]
        windows = connection.execute(f"with models as ({_MODELS}) {_WINDOWS}").fetchall()
    if windows:
        lines += [
            "",
            *_table(
                ["run window", "mean W", "J/total token", "period", "J/output token", "period", "judged"],
                [
                    [name, _number(watts, 2), *(_number(x, 4) for x in ratios), why]
                    for name, watts, *ratios, why in windows
                ],
            ),
        ]
    return "\n".join([*lines, "", f"tables: {_shown(path)} (schemas marts, published)"])


def _number(value: float | None, digits: int) -> str:
    return MISSING if value is None else f"{value:,.{digits}f}"


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    return [
        "  ".join(
            str(cell).ljust(width) if i == 0 else str(cell).rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [header, ["-" * width for width in widths], *rows]
    ]


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
