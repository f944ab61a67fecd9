"""A tenant's statement and a request's receipt as people read them, with figures worked out by hand.

`chat` draws 360 W all day and moves 4 input and 1 output tokens a second, one request at a time, `mail` the same. An
input token then takes 0.012 of an output token's joules. acme asked chat once, at ten: 1,000 in and 100 out are 112 of
the hour's 3,600 + 14,400 × 0.012 = 3,772.8, so 1.296 MJ × 112 / 3,772.8 = 38.473 kJ, with a PUE of 1.2 0.012824 kWh:
5.1298 g at 400 g/kWh by location, 6.4122 g at 500 by market. At 2 and 10 USD a million it pays 0.003 USD. It asked
mail, which has no contract, for 200 output tokens.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from pipelines.fleet.places import PROJECT
from tests.books import environment, later_command
from tests.browser import browsing
from tests.planted import DAY, ENERGY, INPUT, OUTPUT, board, plant, pod, rising, steady, vllm

pytestmark = pytest.mark.long
NAME = "Acme <b>&amp; Söhne</b>"


def asked(identity: str, tenant: str, model: str, tokens: tuple[int, int]) -> dict:
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
    made = {"id": identity, "created": f"{DAY}T10:00:00Z", "seconds": 30, "status": 200, "model": model}
    return {**made, "tenant": tenant, "team": "search", "usage": usage}


LINES = [
    asked("r-1", NAME, "chat", (1_000, 100)),
    asked("r-2", NAME, "mail", (0, 200)),
    asked("r-3", "zeta", "chat", (500, 50)),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("statements")
    (made / "edge.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in LINES), encoding="utf-8")
    hours = [f"{DAY}T{hour:02}:00:00Z,400\n" for hour in range(24)]
    (made / "grid.csv").write_text("at,g\n" + "".join(hours), encoding="utf-8")
    grid = {"path": "grid.csv", "zone": "XX", "time": "at", "values": {"direct_gco2e_per_kwh": "g"}, "source": "g"}
    columns = {"duration_seconds": "seconds", "status": "status", "tenant": "tenant", "team": "team"}
    price = {"tenant": NAME, "input_usd_per_mtok": 2.0, "output_usd_per_mtok": 10.0}
    plant(
        made,
        [
            one
            for model in ("chat", "mail")
            for one in (
                (ENERGY, board(f"GPU-{model}", f"n-{model}", **pod(f"{model}-0")), rising(360_000)),
                (INPUT, vllm(f"{model}-0", model), rising(4)),
                (OUTPUT, vllm(f"{model}-0", model), rising(1)),
                ("vllm:num_requests_running", vllm(f"{model}-0", model), steady(1)),
            )
        ],
        sites=[
            {
                "name": "west",
                "zone": "XX",
                "pue": 1.2,
                "tariff": [{"usd_per_kwh": 0.1}],
                "operations": [{"usd_per_month": 744.0}],  # a dollar for each of October's hours
                "residual_mixes": [{"gco2e_per_kwh": 500.0, "source": "registry 2025"}],
            }
        ],
        nodes=[{"name": f"n-{model}", "site": "west", "host_watts": 0} for model in ("chat", "mail")],
        grid_intensity={"files": [grid]},
        cost_rates=[{"device_type": "a100-sxm4-80gb", "usd_per_gpu_hour": 2.0, "source": "contract"}],
        models=[{"name": "chat", "contract_prices": [price]}],
        requests=[{"name": "edge", "kind": "access_log", "path": "edge.jsonl", "columns": columns}],
        receipts={"keep": True, "days": 3_650},
    )
    done = later_command(made / "fleet.yaml", made / "data")
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def ask(folder: Path, *words: str, status: int = 0) -> str:
    line = [sys.executable, "-m", "pipelines", "receipt", *words, "--fleet", str(folder / "fleet.yaml")]
    surroundings = environment(folder / "data")
    done = subprocess.run(line, env=surroundings, cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_statement_has_what_the_tenant_used_and_pays_for(folder: Path) -> None:
    found = json.loads(ask(folder, "--tenant", NAME, "--month", "2026-10", "--json"))
    assert (found["tenant"], found["month"], found["status"]) == (NAME, "2026-10", "open")
    chat, mail = (one for _, one in sorted((one["model"], one) for one in found["models"]))
    assert {name: chat[name] for name in ("requests", "input_tokens", "output_tokens", "cached_input_tokens")} == {
        "requests": 1,
        "input_tokens": 1_000,
        "output_tokens": 100,
        "cached_input_tokens": None,
    }
    assert chat["facility_energy_kwh"] == pytest.approx(0.012824, abs=1e-6)
    assert chat["location_kgco2e"] == pytest.approx(0.0051298, abs=1e-6)
    assert chat["market_kgco2e"] == pytest.approx(0.0064122, abs=1e-6)
    # At the ends of what an input token takes 100.3 of 3,604.32 and 148 of 4,291.2.
    assert chat["facility_energy_kwh_low"] < 0.012022
    assert chat["facility_energy_kwh_high"] > 0.014899
    assert chat["revenue_usd"] == pytest.approx(0.003, abs=1e-12)
    # mail has no contract, so its sum is not known, and neither is the whole.
    assert (mail["revenue_usd"], found["total"]["revenue_usd"]) == (None, None)
    # 200 of 3,772.8 weighted tokens of an hour.
    assert mail["facility_energy_kwh"] == pytest.approx(0.432 * 200 / 3_772.8, abs=1e-6)
    assert found["total"]["output_tokens"] == 300
    # What it cost within is for who asks.
    assert "known_cost_usd" not in chat
    within = json.loads(ask(folder, "--tenant", found["tenant_key"], "--month", "2026-10", "--json", "--internal"))
    (of_chat,) = (one for one in within["models"] if one["model"] == "chat")
    assert of_chat["margin_usd"] == pytest.approx(0.003 - of_chat["known_cost_usd"])


def test_the_terminal_shows_the_same(folder: Path) -> None:
    lines = ask(folder, "--tenant", "zeta", "--month", "2026-10").splitlines()
    assert lines[0].startswith("zeta (tenant-") and lines[0].endswith("2026-10: open, 3.2% of it booked")
    # Half of what acme asked chat for: 0.0064 kWh, 2.6 and 3.2 g.
    assert lines[4].split() == ["chat", "1", "500", "–", "50", "0.01", "0.003", "0.003", "–"]
    assert "margin" not in "\n".join(lines)


def test_a_receipt_is_found_by_the_requests_id(folder: Path) -> None:
    (found,) = json.loads(ask(folder, "r-1", "--json"))
    assert (found["tenant"], found["model"], found["input_tokens"], found["output_tokens"], found["quality"]) == (
        NAME,
        "chat",
        1_000,
        100,
        "good",
    )
    assert found["own_energy_joules_low"] < found["own_energy_joules"] < found["own_energy_joules_high"]
    # A day of the model: 24 h × 2 USD + 8.64 kWh × 1.2 × 0.1 USD, and half of 24 USD for operations on top.
    assert found["full_cost_ratio"] == pytest.approx((49.0368 + 12) / 49.0368, rel=1e-9)
    both = found["compute_cost_usd"] + found["idle_compute_cost_usd"]
    assert found["full_cost_usd"] == pytest.approx(both * 61.0368 / 49.0368, rel=1e-9)
    assert found["full_cost_status"] == "open"
    printed = ask(folder, "r-1")
    assert f"full cost  {found['full_cost_usd']:.6f} USD: both, times 1.245 of the month (open)" in printed
    assert printed.startswith("request    r-1 of edge, ")
    assert "tokens     1,000 in, of them – cached; 100 out" in printed


def test_a_receipt_and_a_statement_name_what_is_in_doubt(folder: Path, tmp_path: Path) -> None:
    """Of chat, by 30 % of its tokens. mail is clean."""
    shutil.copytree(folder, tmp_path / "copy", symlinks=True)
    asked = tmp_path / "copy"
    with duckdb.connect(str(asked / "data/planted/published/wattledger.duckdb")) as published:
        for table in ("model_daily", "model_monthly"):
            published.execute(
                f"update marts.{table} set doubted_tokens = 0.3 * total_tokens, doubted_tokens_ratio = 0.3,"
                " doubt_reasons = 'hidden_processes' where model = 'chat'"
            )
    line = "?          its model's figures of that date are in doubt: hidden_processes (marts.doubts)"
    assert ask(asked, "r-1").splitlines()[-1] == line
    assert line not in ask(asked, "r-2")
    found = json.loads(ask(asked, "--tenant", NAME, "--month", "2026-10", "--json"))
    assert found["in_doubt"] == {"chat": ["hidden_processes"]}
    assert ask(asked, "--tenant", NAME, "--month", "2026-10").splitlines()[-1] == (
        "?            in doubt by 1 % or more: chat: hidden_processes; `select * from marts.doubts` has the evidence"
        " and what to do"
    )
    html = Path(ask(asked, "--tenant", NAME, "--month", "2026-10", "--html").strip()).read_text(encoding="utf-8")
    assert "Figures of <bdi>chat</bdi> are in doubt by a hundredth or more: hidden_processes." in html
    assert "?" not in ask(folder, "r-1")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["r-9"], f"no receipt of 'r-9': there are receipts of {DAY} to {DAY}"),
        (["--tenant", "acme", "--month", "2026-10"], f"no tenant 'acme' is published; 2026-10 has {NAME!r}, 'zeta'"),
        (["--tenant", "zeta", "--month", "2026-09"], "tenant 'zeta' has nothing in 2026-09"),
        (["--tenant", "zeta"], "--tenant needs --month, such as --month 2026-10"),
        ([], "expected the id of a request, or --tenant NAME with --month, such as 2026-10"),
        (["r-1", "--tenant", "zeta"], "expected the id of a request, or --tenant NAME with --month, such as 2026-10"),
        (["r-1", "--html"], "--html, --month and --internal are of a tenant's statement: name the --tenant"),
    ],
)
def test_what_cannot_be_answered_is_one_line(folder: Path, words: list[str], line: str) -> None:
    assert ask(folder, *words, status=2) == line + "\n"


@pytest.mark.needs("chromium")
def test_the_page_is_printed_on_one_sheet_and_runs_nothing(folder: Path, tmp_path: Path) -> None:
    path = Path(ask(folder, "--tenant", NAME, "--month", "2026-10", "--html").strip())
    assert path.parent == folder / "data" / "planted" / "statements"
    html = path.read_text(encoding="utf-8")
    assert "<script" not in html and "<b>&amp; Söhne" not in html
    assert "margin" not in html.partition("<body>")[2] and "cost within" not in html
    assert "cost within" in _with_internal(folder)
    with browsing(tmp_path / "profile") as page:
        page.look(width=1000)
        page.open(path.as_uri())
        assert page.value("document.querySelector('h1').innerText") == NAME
        assert page.value("document.querySelector('tfoot').innerText").split()[:2] == ["total", "2"]
        # Nothing is wider than the window, also on a phone.
        page.look(width=390, is_phone=True)
        assert page.value("document.documentElement.scrollWidth") <= 390
        page.look(width=1000, is_print=True)
        page.printed(tmp_path / "page.pdf")
        assert page.requests == [path.as_uri()]
        assert page.messages == []
    assert (tmp_path / "page.pdf").read_bytes().count(b"/Type /Page\n") == 1


def _with_internal(folder: Path) -> str:
    printed = ask(folder, "--tenant", NAME, "--month", "2026-10", "--html", "--internal")
    return Path(printed.strip()).read_text(encoding="utf-8")
