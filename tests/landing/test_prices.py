"""Price lists of models and of GPUs: what is read from good ones, and what becomes of broken ones."""

from __future__ import annotations

import csv
from datetime import date
from pathlib import Path

import duckdb
import orjson
import pytest

from collectors.records import price_lists
from collectors.records.price_lists import read_price_list
from collectors.rows import Rejects
from collectors.samples import SourceError
from pipelines.command_line.headline import one_table
from pipelines.command_line.model_headline import seeded_rates
from pipelines.fleet.catalog import SEEDS
from pipelines.fleet.money.cost_rates import CostRate, CostRateFile
from pipelines.landing.price_landing import PriceFile, land_prices
from pipelines.publishing.parts import Parts
from tests.books import Book, validation_data
from tests.planted import ENERGY, board, plant, rising
from tests.publishing.test_held_back import published

LITELLM = {
    "sample_spec": {"mode": "one of: chat, embedding, …", "litellm_provider": "one of …", "input_cost_per_token": 0.0},
    "gpt-4o": {
        "litellm_provider": "openai",
        "mode": "chat",
        "input_cost_per_token": 2.5e-06,
        "cache_read_input_token_cost": 1.25e-06,
        "output_cost_per_token": 1e-05,
    },
    "groq/openai/gpt-oss-120b": {
        "litellm_provider": "groq",
        "mode": "chat",
        "input_cost_per_token": 3e-07,
        "output_cost_per_token": "7.5e-07",
    },
    "ollama/llama3": {"litellm_provider": "ollama", "mode": "chat", "input_cost_per_token": 0.0},
    "text-embedding-3-small": {"litellm_provider": "openai", "mode": "embedding", "input_cost_per_token": 2e-08},
    "priced-by-image": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_image": 0.01},
    "wrong": {"litellm_provider": "x", "mode": "chat", "input_cost_per_token": 2.5, "output_cost_per_token": 1e-05},
    "negative": {"litellm_provider": "x", "mode": "chat", "input_cost_per_token": -1e-06},
    "text": {"litellm_provider": "x", "mode": "chat", "input_cost_per_token": "free"},
}


def written(folder: Path, name: str, content: bytes) -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


def listed(path: str, source: str = "litellm", valid_from: date = date(1970, 1, 1)) -> PriceFile:
    return PriceFile.model_construct(path=path, source=source, as_of=date(2026, 11, 1), valid_from=valid_from)


def test_litellms_prices_per_token_become_prices_per_million(tmp_path: Path) -> None:
    read = read_price_list(written(tmp_path, "prices.json", orjson.dumps(LITELLM)))
    assert [tuple(row.values()) for row in read.prices.to_pylist()] == [
        ("gpt-4o", "openai", 2.5, 1.25, 10.0),
        ("groq/openai/gpt-oss-120b", "groq", 0.3, None, 0.75),
        ("ollama/llama3", "ollama", 0.0, None, None),
    ]
    assert (read.rejects.rows, read.rejects.read) == (3, 4)  # one of them has no price of tokens
    assert [reason.removeprefix(f"{tmp_path}/prices.json: ") for reason in read.rejects.first] == [
        "'wrong': input_usd_per_mtok: got 2.5, expected 0 to 10000 USD per million tokens",
        "'negative': input_usd_per_mtok: got -1e-06, expected 0 to 10000 USD per million tokens",
        "'text': input_usd_per_mtok: got 'free', expected 0 to 10000 USD per million tokens",
    ]


def test_a_csv_in_this_projects_columns_is_read(tmp_path: Path) -> None:
    text = b"model,input_usd_per_mtok,output_usd_per_mtok,note\na,1,2,x\nb,,3,\na,9,9,\n,1,1,\nc,nan,1,\nd,,,\n"
    read = read_price_list(written(tmp_path, "prices.csv", text))
    assert [tuple(row.values()) for row in read.prices.to_pylist()] == [
        ("a", None, 1, None, 2),
        ("b", None, None, None, 3),
    ]
    assert (read.rejects.rows, read.rejects.read) == (3, 3)  # half of them
    assert [reason.removeprefix(f"{tmp_path}/prices.csv:") for reason in read.rejects.first] == [
        "4: 'a' is there already",
        "5: model: got an empty cell, expected a name of at most 1,000 characters",
        "6: input_usd_per_mtok: got 'nan', expected 0 to 10000 USD per million tokens",
    ]


@pytest.mark.needs("validation-data")
def test_the_real_list_of_chat_models_lands_whole(held: duckdb.DuckDBPyConnection) -> None:
    path = validation_data() / "prices" / "litellm_chat_prices_usd_per_mtok.csv"
    assert land_prices(held, (listed(str(path)),)) == []
    (row,) = held.execute(
        "select count(*), count(distinct model), any_value(source), any_value(as_of) from raw.model_prices"
    ).fetchall()
    assert row == (3125, 3125, "litellm", date(2026, 11, 1))
    assert held.execute(
        "select provider, input_usd_per_mtok, output_usd_per_mtok from raw.model_prices"
        " where model = 'cerebras/gpt-oss-120b'"
    ).fetchall() == [("cerebras", 0.35, 0.75)]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("cut.json", orjson.dumps(LITELLM)[:-9], "is not JSON"),
        (
            "nan.json",
            b'{"m": {"litellm_provider": "x", "mode": "chat", "input_cost_per_token": NaN}}',
            "is not JSON",
        ),
        ("login.json", b"<html>log in</html>", "is not JSON"),
        ("other.json", b'{"data": [1, 2]}', "is not LiteLLM's list of prices"),
        ("other.csv", b"name,price\nx,1\n", "no column ['input_usd_per_mtok', 'model', 'output_usd_per_mtok']"),
        ("latin.csv", "model,input_usd_per_mtok,output_usd_per_mtok\né,1,1\n".encode("latin-1"), "is not CSV: 'utf-8'"),
        ("empty.csv", b"model,input_usd_per_mtok,output_usd_per_mtok\n", "holds no price"),
        ("prices.xlsx", b"PK", "not a .json or .csv file"),
    ],
)
def test_a_broken_list_is_refused_and_what_was_held_stays(
    tmp_path: Path, held: duckdb.DuckDBPyConnection, name: str, content: bytes, reason: str
) -> None:
    good = written(tmp_path, "good.csv", b"model,input_usd_per_mtok,output_usd_per_mtok\na,1,2\n")
    land_prices(held, (listed(good),))
    (trouble,) = land_prices(held, (listed(written(tmp_path, name, content)), listed(good, "other")))
    assert trouble.startswith("litellm: refused: ")
    assert reason in trouble
    assert held.execute("select source, output_usd_per_mtok from raw.model_prices order by 1").fetchall() == [
        ("litellm", 2.0),
        ("other", 2.0),
    ]


def test_a_list_over_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_lists, "FILE_LIMIT_BYTES", 10)
    with pytest.raises(SourceError, match="is over 10 bytes"):
        read_price_list(written(tmp_path, "prices.json", orjson.dumps(LITELLM)))


def test_a_list_that_the_fleet_no_longer_names_is_forgotten_and_an_older_one_is_not(
    tmp_path: Path, held: duckdb.DuckDBPyConnection
) -> None:
    path = written(tmp_path, "prices.csv", b"model,input_usd_per_mtok,output_usd_per_mtok\na,1,2\n")
    older, newer = listed(path), listed(path, valid_from=date(2026, 11, 1))
    assert land_prices(held, (older, newer, listed(path, "gone"))) == []
    assert land_prices(held, (older, newer)) == []
    assert held.execute("select source, valid_from from raw.model_prices order by 2").fetchall() == [
        ("litellm", date(1970, 1, 1)),
        ("litellm", date(2026, 11, 1)),
    ]


# --- GPU-hours --------------------------------------------------------------------------------------------------------

GPUS = b"provider,region,gpu,gpu_count,usd_per_hour_ondemand\n"


def gpu_list(path: str, **more: object) -> CostRateFile:
    fields = {"path": path, "source": "list", "device_types": {"H100": "h100-sxm5-80gb"}, **more}
    return CostRateFile.model_construct(**{**CostRateFile.model_construct().__dict__, **fields})


@pytest.mark.needs("validation-data")
def test_a_providers_list_of_instances_gives_rates_per_gpu_hour() -> None:
    """Eight H100 for 23.60 USD are 2.95 USD each, as one is; eight H200 28.00 USD, 3.50 USD each."""
    path = str(validation_data() / "prices" / "gpu_prices_nebius_skypilot_v8.csv")
    types = {"H100": "h100-sxm5-80gb", "H200": "h200-sxm5-141gb"}
    rates = list(gpu_list(path, device_types=types, where={"provider": "nebius"}).rates(Rejects()))
    assert [(rate["device_type"], rate["usd_per_gpu_hour"], rate["includes_energy"]) for rate in rates] == [
        ("h100-sxm5-80gb", 2.95, True),
        ("h200-sxm5-141gb", 3.5, True),
    ]
    spot = gpu_list(path, where={"region": "eu-north1"}, usd_per_hour="usd_per_hour_spot").rates(Rejects())
    assert [rate["usd_per_gpu_hour"] for rate in spot] == [1.25]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            GPUS + b"a,x,H100,1,2\na,y,H100,8,24\n",
            "2 rows of H100 where {}: expected one price per GPU-hour, found 2, 3",
        ),
        (GPUS + b"a,x,H200,1,2\n", "0 rows of H100 where {}: expected one price per GPU-hour, found none"),
        (GPUS + b"a,x,H100,1,\n", "1 rows of H100 where {}: expected one price per GPU-hour, found none"),
        (GPUS + b"a,x,H100,0,2\n", "H100: got '2' USD for '0' GPUs"),
        (GPUS + b"a,x,H100,1,nan\n", "H100: got 'nan' USD for '1' GPUs"),
        (GPUS + b"a,x,H100,1,-2\n", "H100: got '-2' USD for '1' GPUs"),
        (GPUS + b"a,x,H100\n", "1 rows of H100 where {}: expected one price per GPU-hour, found none"),
        (b"<html>log in</html>\n", "no column ['gpu', 'gpu_count', 'usd_per_hour_ondemand']"),
        ("provider,é\n".encode("latin-1"), "is not CSV: 'utf-8' codec"),
    ],
)
def test_a_gpu_list_that_gives_no_one_price_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(SourceError) as refused:
        list(gpu_list(written(tmp_path, "gpus.csv", content)).rates(Rejects()))
    assert reason in str(refused.value)


def test_every_seeded_rate_is_of_a_device_type_that_the_seeds_know() -> None:
    def column(seed: str) -> set[str]:
        with (SEEDS / f"{seed}.csv").open(newline="", encoding="utf-8") as lines:
            return {row["device_type"] for row in csv.DictReader(lines)}

    assert column("cost_rates") - column("device_types") == set()
    assert column("device_type_aliases") - column("device_types") == set()


# --- a rate that includes electricity ---------------------------------------------------------------------------------

OWN = {"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2.0, "includes_energy": True, "source": "our contract"}


@pytest.fixture(scope="module")
def rated(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """West has a tariff, an H100 (rate of the seeds) and an A100 (rate of the fleet file, all-in); a hall without a
    tariff has an H200 (rate of the seeds)."""
    made = plant(
        tmp_path_factory.mktemp("rated"),
        [
            (ENERGY, board("GPU-h100", "n1", modelName="NVIDIA H100 80GB HBM3"), rising(100_000)),
            (ENERGY, board("GPU-a100", "n1"), rising(100_000)),
            (ENERGY, board("GPU-h200", "n2", modelName="NVIDIA H200"), rising(100_000)),
        ],
        sites=[
            {"name": "west", "zone": "US-CAL-CISO", "pue": 1.2, "tariff": [{"usd_per_kwh": 0.1}]},
            {"name": "hall", "zone": "US-CAL-CISO", "pue": 1.2},
        ],
        nodes=[{"name": "n1", "site": "west"}, {"name": "n2", "site": "hall"}],
        cost_rates=[OWN],
    )
    made.run()
    return made


LINE = (
    "USD: the rate of h100-sxm5-80gb (1.30 USD per GPU-hour) is from the seed cost_rates and includes electricity, so"
    " the tariff is not charged beside it; your own rates go under cost_rates in the fleet file"
)


def test_a_seeded_rate_that_stands_in_for_a_tariff_is_named_under_the_table(rated: Book) -> None:
    costs = "select device_type, sum(compute_cost_usd)::double from marts.model_daily group by 1 order by 1"
    assert rated.query(costs) == [
        ("a100-sxm4-80gb", pytest.approx(24 * 2.00, abs=1e-3)),
        ("h100-sxm5-80gb", pytest.approx(24 * 1.30, abs=1e-3)),
        ("h200-sxm5-141gb", pytest.approx(24 * 1.41, abs=1e-3)),
    ]
    # The rate of the A100 is in the fleet file itself, and the hall of the H200 has no tariff.
    published(rated, rated.fleet.period.start, rated.fleet.period.end)
    assert one_table(rated.fleet, "models", Parts()).splitlines()[-1] == LINE


def test_without_a_seeded_rate_beside_a_tariff_there_is_no_such_line(rated: Book) -> None:
    own = CostRate(device_type="h100-sxm5-80gb", usd_per_gpu_hour=2.5, source="our contract")
    stated = rated.fleet.model_copy(update={"cost_rates": (own, *rated.fleet.cost_rates)})
    with rated.connection(read_only=True) as connection:
        assert seeded_rates(connection, rated.fleet) == LINE
        assert seeded_rates(connection, stated) is None
