"""A real LiteLLM's log and counters (`tests/collectors/litellm`), the receipts and statements of its tenants, and the
price that goes back to it: one number of tokens, joules and dollars each.

Its nine requests by three keys were at a quarter past twelve, in the only hour in which two boards draw 360 W; the
engines count what the requests asked for.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
import yaml

from pipelines.fleet.places import PROJECT
from tests import litellm_recording
from tests.books import environment, files_source, later_command, record
from tests.planted import ENERGY, INPUT, OUTPUT, Series, board, moment, plant, pod, rising, vllm
from tests.planted import table_of as table

pytestmark = pytest.mark.long
NOON, ONE = 12 * 3600, 13 * 3600
FIRST_LOOK = moment(NOON + 900)
CACHED = "vllm:prompt_tokens_cached_total"
# As the log has them: requests, input tokens, cached ones of these, output tokens.
ASKED = {
    ("ads-batch", "chat"): (3, 3_000, 2_432, 28),
    ("lab", "chat"): (1, 10, 0, 5),
    ("lab", "code"): (2, 144, 64, 1_050),
    ("search-prod", "chat"): (3, 540, 256, 136),
}


def engine(model: str) -> Iterator[Series]:
    """A board of 360 W for an hour, and counters that rise by what the log has of the model."""
    asked = [tokens for (_, of), tokens in ASKED.items() if of == model]
    computed, cached, output = (sum(tokens[n] for tokens in asked) / 3600 for n in (1, 2, 3))
    yield ENERGY, board(f"GPU-{model}", f"n-{model}", **pod(f"{model}-0")), rising(360_000, NOON, ONE)
    for metric, rate in ((INPUT, computed), (CACHED, cached), (OUTPUT, output)):
        yield metric, vllm(f"{model}-0", model), rising(rate, NOON, ONE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("agreement")
    record(table(list(litellm_recording.pages(FIRST_LOOK))), made / "recorded")
    (made / "log.jsonl").write_text(litellm_recording.log(FIRST_LOOK), encoding="utf-8")
    plant(
        made,
        [*engine("chat"), *engine("code")],
        more_sources=[
            files_source("litellm", "recorded/*.parquet", tenant_labels=["api_key_alias"], team_labels=["team"])
        ],
        models=[{"name": "chat", "aliases": ["openai/chat"]}, {"name": "code", "aliases": ["openai/code"]}],
        requests=[{"name": "log", "kind": "litellm", "path": "log.jsonl"}],
        cost_rates=[{"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2.0, "source": "contract"}],
        receipts={"keep": True, "days": 3_650},
    )
    done = later_command(made / "fleet.yaml", made / "data")
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def answer(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "pipelines", *words, "--fleet", str(folder / "fleet.yaml")]
    done = subprocess.run(
        command, env=environment(folder / "data"), cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows(folder: Path, query: str) -> list[dict]:
    return json.loads(answer(folder, "sql", query, "--format", "json"))


@pytest.fixture(scope="module")
def statements(folder: Path) -> dict[tuple[str, str], dict]:
    """Tenant and model -> what the tenant's statement of the month has of it."""
    words = ("--month", "2026-10", "--json", "--internal")
    found = {tenant: json.loads(answer(folder, "receipt", "--tenant", tenant, *words)) for tenant, _ in ASKED}
    return {(tenant, one["model"]): one for tenant, held in found.items() for one in held["models"]}


def test_log_counters_receipts_and_statements_have_the_same_tokens(
    folder: Path, statements: dict[tuple[str, str], dict]
) -> None:
    sums = ", ".join(f"sum({name}_tokens)::double as {name}" for name in ("input", "cached_input", "output"))
    receipts = rows(
        folder, f"select tenant, model, count(*)::double as n, {sums} from receipts.request_receipts group by all"
    )
    names = {
        row["tenant_key"]: row["tenant"]
        for row in rows(folder, "select distinct tenant_key, tenant from finance.chargeback")
    }
    classes = ("input", "cached_input", "output")
    assert {
        (names[row["tenant"]], row["model"]): (row["n"], *(row[name] for name in classes)) for row in receipts
    } == ASKED
    assert {
        key: (one["requests"], *(one[f"{name}_tokens"] for name in classes)) for key, one in statements.items()
    } == ASKED
    with closing(duckdb.connect(str(folder / "data/planted/warehouse.duckdb"), read_only=True)) as warehouse:
        counted = warehouse.execute(
            "select tenant, model, sum(input_tokens)::double, sum(cached_input_tokens)::double,"
            " sum(output_tokens)::double from intermediate.int_tenant_counters group by all"
        ).fetchall()
    assert {(names[tenant], model): tokens for tenant, model, *tokens in counted} == {
        key: list(asked[1:]) for key, asked in ASKED.items()
    }


def test_receipts_and_balancing_rows_are_the_boards_joules(folder: Path) -> None:
    priced = "select model, own_energy_joules + idle_energy_joules as joules from receipts.request_receipts"
    query = f"from ({priced} union all by name select model, energy_joules as joules from receipts.balancing_rows)"
    found = rows(folder, f"select model, sum(joules)::double as joules {query} group by model order by model")
    # 360 W for an hour, of each.
    assert [(row["model"], row["joules"]) for row in found] == [("chat", 1_296_000), ("code", 1_296_000)]


def test_the_price_that_goes_back_to_the_proxy_is_what_tenants_are_charged(
    folder: Path, statements: dict[tuple[str, str], dict], tmp_path: Path
) -> None:
    """A computed input token weighs a quarter of an output token, a cached one a tenth of that: chat's hour has
    169 + 862 / 4 + 2,688 / 40 = 451.7 weighted tokens, code's 1,050 + 80 / 4 + 64 / 40 = 1,071.6. An hour costs 2 USD
    and its electricity."""
    electricity = 0.1 * sum(one["facility_energy_kwh"] for (_, model), one in statements.items() if model == "code")
    answer(folder, "export", "--out", str(tmp_path))
    proxy = yaml.safe_load((tmp_path / "litellm_actual.yaml").read_text(encoding="utf-8"))
    prices = {one["model_name"]: one["model_info"] for one in proxy["model_list"]}
    for model, weighted in (("chat", 451.7), ("code", 1_071.6)):
        price = (2 + electricity) / weighted
        assert prices[model] == {
            "output_cost_per_token": pytest.approx(price, rel=1e-6),
            "input_cost_per_token": pytest.approx(price / 4, rel=1e-6),
            "cache_read_input_token_cost": pytest.approx(price / 40, rel=1e-6),
        }
    for (tenant, model), (_, total, cached, output) in ASKED.items():
        price = prices[model]
        charged = (
            (total - cached) * price["input_cost_per_token"]
            + cached * price["cache_read_input_token_cost"]
            + output * price["output_cost_per_token"]
        )
        assert statements[tenant, model]["known_cost_usd"] == pytest.approx(charged, rel=1e-6)
