"""Who asked, by counters of gateways and frontends where no log exists.

Planted gateways count from 10:00 to 14:00 in steps of a minute; each source states the label that names its tenants. A
real LiteLLM's pages and log are read, too (`tests/litellm_recording`): its nine requests by three keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.personal_labels import PersonalLabels
from tests import litellm_recording
from tests.books import Book, files_source, record
from tests.planted import (
    ENERGY,
    INPUT,
    OUTPUT,
    START_TIME,
    Series,
    board,
    moment,
    name_keys,
    plant,
    pod,
    rising,
    steady,
    table_of,
    vllm,
)

HOUR, START, END = 3_600, 36_000, 50_400
CHANGE = 40_800  # 11:20
ENVOY = {"gen_ai_operation_name": "chat", "gen_ai_request_model": "qwen", "instance": "envoy:1064"}
ROUTER = {"priority": "0", "instance": "epp:9090"}
SEARCH, ADS = {"x_tenant": "search", "x_team": "web"}, {"x_tenant": "ads", "x_team": "web"}


def engine(model: str, output: float, computed: float) -> Iterator[Series]:
    yield ENERGY, board(f"GPU-{model}", f"n-{model}", **pod(f"{model}-0")), rising(360_000, start=1e9)
    yield OUTPUT, vllm(f"{model}-0", model), rising(output, START, END)
    yield INPUT, vllm(f"{model}-0", model), rising(computed, START, END)


def engines() -> Iterator[Series]:
    yield from engine("qwen", 100, 400)
    yield from engine("llama", 10, 40)
    yield from engine("mistral", 10, 40)
    yield from engine("chat", 5, 20)
    yield from engine("gemma", 10, 40)


def of_envoy() -> Iterator[Series]:
    """Both spellings of the same tokens, with types that are parts or sums of others."""
    yield START_TIME, {"instance": "envoy:1064"}, steady(moment(0), START, END)
    for labels, output in ((SEARCH, 30), (ADS, 20)):
        asked = {**ENVOY, **labels}
        for token_type, per_second in {
            "input": 4 * output,
            "output": output,
            "cached_input": 2 * output,
            "cache_creation_input": output,
            "reasoning": 7,
            "total": 5 * output,
        }.items():
            counted = {**asked, "gen_ai_token_type": token_type}
            yield "gen_ai_client_token_usage_token_sum", counted, rising(per_second, START, END)
        for modality, share in (("text", 0.75), ("image", 0.25)):
            usage = {**asked, "gen_ai_token_modality": modality}
            for name, per_second in {
                "input_tokens": 4 * output,
                "cache_read_input_tokens": 2 * output,
                "reasoning_output_tokens": 7,
                "output_tokens": output,
            }.items():
                yield f"gen_ai_client_inference_usage_{name}_total", usage, rising(share * per_second, START, END)


def of_router() -> Iterator[Series]:
    """In front of llama: the tenant `a` restarts with the process at noon, `late` begins at 11:30."""
    yield START_TIME, {"instance": "epp:9090"}, [
        *steady(moment(0), START, 12 * HOUR - 60), *steady(moment(12 * HOUR - 30), 12 * HOUR, END),
    ]  # fmt: skip
    for name, factor in (("input", 4), ("output", 1)):
        yield f"llm_d_epp_request_{name}_tokens_sum", {**ROUTER, **asked_of("a")}, [
            *rising(4 * factor, START, 12 * HOUR - 60), *rising(4 * factor, 12 * HOUR, END, start=0),
        ]  # fmt: skip
        late = rising(2 * factor, int(11.5 * HOUR), END, start=120 * factor)
        yield f"llm_d_epp_request_{name}_tokens_sum", {**ROUTER, **asked_of("late")}, late
        # A gateway in the same Prometheus sees the router's requests, and does not know whose they are.
        seen = {"gen_ai_request_model": "llama", "gen_ai_token_type": name, "instance": "agw:15020"}
        yield "agentgateway_gen_ai_client_token_usage_sum", seen, rising(9 * factor, START, END)
    # The old name of the same counter is no second one.
    yield "inference_objective_output_tokens_sum", {**ROUTER, **asked_of("a")}, rising(4, START, END)


def of_another_router(first: float, last: float) -> Iterator[Series]:
    """In front of gemma: its page is read by one server and, from another moment on, by the next one."""
    for name, factor in (("input", 4), ("output", 1)):
        labels = {"target_model_name": "gemma", "fairness_id": "moved", "instance": "epp-2:9090"}
        counted = rising(2 * factor, first, last, start=1e6 + 2 * factor * (first - START))
        yield f"llm_d_epp_request_{name}_tokens_sum", labels, counted


def asked_of(tenant: str) -> dict[str, str]:
    return {"model_name": "served-as-llama", "target_model_name": "llama", "fairness_id": tenant}


def of_agentgateway() -> Iterator[Series]:
    """Twice what mistral's engine counted; at noon a new label replaces all counters of the family."""
    yield START_TIME, {"instance": "agw:15020"}, steady(moment(0), START, END)
    for kind, per_second in (("input", 80), ("output", 20), ("input_cache_read", 0)):
        labels = {"gen_ai_request_model": "mistral", "gen_ai_token_type": kind, "instance": "agw:15020"}
        counted = rising(per_second, START, END)
        before = [sample for sample in counted if sample[0] < moment(12 * HOUR)]
        yield "agentgateway_gen_ai_client_token_usage_sum", {**labels, "user_id": "u1"}, before
        yield (
            "agentgateway_gen_ai_client_token_usage_sum",
            {**labels, "user_id": "u1", "route": "r"},
            counted[len(before) :],
        )


def of_dynamo() -> Iterator[Series]:
    """No engine has a page: the frontend's tokens are the book's, and each namespace is a tenant."""
    for namespace, output in (("blue", 3), ("green", 1)):
        labels = {"model": "nemotron", "namespace": namespace, "pod": f"frontend-{namespace}"}
        yield "dynamo_frontend_input_sequence_tokens_sum", labels, rising(4 * output, START, END)
        yield "dynamo_frontend_output_tokens_total", labels, rising(output, START, END)
        yield "dynamo_frontend_output_sequence_tokens_sum", labels, rising(output, START, END)


def otlp_files(folder: Path) -> None:
    """A board's joules, 100 W from ten to eleven, and a span of a chat, as a Collector writes them."""
    points = [
        {"timeUnixNano": str(int(moment(START + 60 * n) * 1e9)), "asDouble": 6_000 * n + 5e6, "attributes": attributes}
        for attributes in [otlp_attributes({"hw.id": "0", "hw.type": "gpu", "hw.serial_number": "S1"})]
        for n in range(61)
    ]
    energy = {"isMonotonic": True, "aggregationTemporality": 2, "dataPoints": points}
    resource = {"attributes": otlp_attributes({"host.name": "n-otel"})}
    metrics = [{"metrics": [{"name": "hw.energy", "unit": "J", "sum": energy}]}]
    metered = {"resourceMetrics": [{"resource": resource, "scopeMetrics": metrics}]}
    span = {
        "traceId": "a" * 32,
        "spanId": "b" * 16,
        "startTimeUnixNano": str(int(moment(START) * 1e9)),
        "endTimeUnixNano": str(int(moment(START + 3) * 1e9)),
        "attributes": otlp_attributes(
            {"gen_ai.operation.name": "chat", "gen_ai.request.model": "ghost", "tenant.id": "acme",
             "gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 5, "gen_ai.prompt": "SECRET PROMPT"}
        ),
    }  # fmt: skip
    traced = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}
    for name, document in {"metrics": metered, "spans": traced}.items():
        (folder / f"{name}.jsonl").write_text(json.dumps(document) + "\n", encoding="utf-8")


def otlp_attributes(held: dict[str, object]) -> list[dict[str, object]]:
    of_type = {str: "stringValue", int: "intValue"}
    return [{"key": name, "value": {of_type[type(value)]: value}} for name, value in held.items()]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    folder = tmp_path_factory.mktemp("counters")
    gateways = {
        "envoy": (of_envoy(), {"tenant_labels": ["x_tenant"], "team_labels": ["x_team"]}),
        "router": (of_router(), {"tenant_labels": ["fairness_id"]}),
        "old_server": (of_another_router(START, CHANGE + 240), {"tenant_labels": ["fairness_id"]}),
        "new_server": (of_another_router(CHANGE, END), {"tenant_labels": ["fairness_id"]}),
        "agentgateway": (of_agentgateway(), {"tenant_labels": ["user_id"]}),
        "dynamo": (of_dynamo(), {"tenant_labels": ["namespace"]}),
        "litellm": (
            litellm_recording.pages(moment(START + HOUR / 2)),
            {"tenant_labels": ["api_key_alias"], "team_labels": ["team"]},
        ),
    }
    for name, (series, _) in gateways.items():
        record(table_of(list(series)), folder / "recorded" / name)
    # Its requests two hours later.
    asked_at = moment(START + HOUR / 2) + 2 * HOUR
    (folder / "log.jsonl").write_text(litellm_recording.log(asked_at), encoding="utf-8")
    # Of llama's hour from one the log names who asked; of its hour from ten it names none.
    edge = [
        {"created": moment(13 * HOUR + 60), "model": "llama", "tenant": "b", "usage": usage(400, 100)},
        {"created": moment(10 * HOUR + 60), "model": "llama", "usage": usage(4_000, 1_000)},
    ]
    (folder / "edge.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in edge), encoding="utf-8")
    otlp_files(folder)
    otel = {"name": "otel", "kind": "otlp", "path": "metrics.jsonl", "interval_seconds": 60, "site": "west"}
    sources = [files_source(name, f"recorded/{name}/*.parquet", **keys) for name, (_, keys) in gateways.items()]
    planted = plant(
        folder,
        engines(),
        marts=("tenant_usage_daily", "token_reconciliation_daily"),
        more_sources=[*sources, otel],
        models=[{"name": "chat", "aliases": ["openai/chat"]}, {"name": "code", "aliases": ["openai/code"]}],
        requests=[
            {"name": "log", "kind": "litellm", "path": "log.jsonl"},
            {"name": "spans", "kind": "otlp", "path": "spans.jsonl", "tenant_attributes": ["tenant.id"]},
            {"name": "edge", "kind": "access_log", "path": "edge.jsonl", "columns": {"tenant": "tenant"}},
        ],
    )
    name_keys(planted, "ads-batch", "lab", "search-prod", "acme", "a", "b")
    planted.run()
    return planted


def usage(computed: int, output: int) -> dict[str, int]:
    return {"prompt_tokens": computed, "completion_tokens": output}


def asked(book: Book, model: str) -> dict[tuple[str | None, str], tuple[float, ...]]:
    """Team and tenant -> what they asked for of a model: input, cached input and output tokens."""
    rows = book.query(
        "select request_team, tenant, sum(logged_input_tokens)::double, sum(logged_cached_input_tokens)::double,"
        " sum(logged_output_tokens)::double from marts.tenant_usage_daily where model = ? and tenant not in"
        " ('__unattributed__', '__no_requests__') group by 1, 2",
        [model],
    )
    return {(team, tenant): tuple(tokens) for team, tenant, *tokens in rows}


def test_log_and_counters_of_a_real_litellm_agree_to_the_token(book: Book) -> None:
    by_hour = book.query(
        "select hour(hour_start_at at time zone 'UTC'), model, request_team, tenant, sum(requests)::double,"
        " sum(logged_input_tokens)::double, sum(logged_cached_input_tokens)::double, sum(logged_output_tokens)::double"
        " from intermediate.int_tenant_hours where model in ('chat', 'code') group by 1, 2, 3, 4 order by 1, 2, 4"
    )
    expected = [
        ("chat", "team-2", "ads-batch", 3, 3_000, 2_432, 28),
        ("chat", None, "lab", 1, 10, 0, 5),
        ("chat", "team-1", "search-prod", 3, 540, 256, 136),
        ("code", None, "lab", 2, 144, 64, 1_050),
    ]
    # Counters do not state how many requests there were.
    assert [row[1:] for row in by_hour if row[0] == 10] == [(*row[:3], None, *row[4:]) for row in expected]
    assert [row[1:] for row in by_hour if row[0] == 12] == expected
    assert len(by_hour) == 8


def test_of_two_spellings_and_overlapping_types_each_token_counts_once(book: Book) -> None:
    seconds = 4 * HOUR
    assert asked(book, "qwen") == {
        ("web", "search"): (120 * seconds, 60 * seconds, 30 * seconds),
        ("web", "ads"): (80 * seconds, 40 * seconds, 20 * seconds),
    }


def test_what_no_tenant_explains_is_a_row(book: Book) -> None:
    rows = book.query(
        "select tenant, input_tokens::double, output_tokens::double from marts.tenant_usage_daily where model = 'qwen'"
        " and tenant = '__unattributed__'"
    )
    # The engine counted 100 a second, the tenants asked for 50.
    assert rows == [("__unattributed__", 200 * 4 * HOUR, 50 * 4 * HOUR)]


def test_restarts_and_tenants_that_begin_are_counted_and_logs_come_first(book: Book) -> None:
    # a: 4 a second from ten to 11:59, from noon to one anew; the minute between is the restart's. late: 120 at 11:30,
    # then 2 a second to one. From one the log has the hour; its request of ten names none, so the counters do.
    assert asked(book, "llama") == {
        (None, "a"): (4 * 4 * 10_740, 0, 4 * 10_740),
        (None, "late"): (4 * (120 + 2 * 5_400), 0, 120 + 2 * 5_400),
        (None, "b"): (400, 0, 100),
    }


def test_a_server_that_takes_over_counts_on(book: Book) -> None:
    # Both read it for four minutes.
    assert asked(book, "gemma") == {(None, "moved"): (8 * 4 * HOUR, 0, 2 * 4 * HOUR)}


def test_more_than_the_engine_counted_is_a_row_and_labels_that_change_are_no_tokens(book: Book) -> None:
    # Between 11:59 and noon no counter shows both: that minute is lost, and no past comes with the new name.
    counted = 4 * HOUR - 60
    assert asked(book, "mistral") == {(None, "u1"): (80 * counted, 0, 20 * counted)}
    given = book.query("select tenant, output_tokens::double from marts.tenant_usage_daily where model = 'mistral'")
    assert dict(given)["u1"] <= 10 * 4 * HOUR
    checks = book.query(
        "select token_class, cross_check_ratio from marts.token_reconciliation_daily"
        " where engine = 'gateway:mistral' order by 1"
    )
    # 28,680 seconds' worth of the engine's 14,400.
    assert checks == [("input", pytest.approx(0.9916667)), ("output", pytest.approx(0.9916667))]


def test_frontends_name_tenants_by_any_label(book: Book) -> None:
    seconds = 4 * HOUR
    assert asked(book, "nemotron") == {
        (None, "blue"): (12 * seconds, 0, 3 * seconds),
        (None, "green"): (4 * seconds, 0, seconds),
    }


def test_otlp_is_booked_as_other_sources_are(book: Book) -> None:
    [(joules, node)] = book.query(
        "select sum(energy_joules)::double, max(node) from marts.energy_ledger where meter = 'S1'"
    )
    assert (joules, node) == (pytest.approx(100 * HOUR), "n-otel")
    assert asked(book, "ghost") == {(None, "acme"): (7, 0, 5)}
    assert "SECRET" not in str(book.query("select * from raw.requests"))


def test_no_label_of_persons_is_in_the_warehouse(book: Book) -> None:
    texts = [text for (text,) in book.query("select labels from raw.series where source = 'litellm'")]
    assert any("search-prod" in text for text in texts)
    assert not [text for text in texts if "hashed_api_key" in text or "user_email" in text or "model_id" in text]


def test_what_may_name_a_person_is_left_out_and_counters_stay_apart() -> None:
    labels = {"model": "m", "team_alias": "ads", "user_email": "ann@acme.example", "client_ip": "10.1.2.3", "job": "j"}
    kept = PersonalLabels(["team_alias"]).without("litellm", labels)
    assert {**kept, "left_out_labels": ""} == {"model": "m", "team_alias": "ads", "job": "j", "left_out_labels": ""}
    other = PersonalLabels(["team_alias"]).without("litellm", {**labels, "user_email": "bob@acme.example"})
    assert other != kept
    # An alias that is an address is none; the labels of an engine are as they were.
    mailed = PersonalLabels(["team_alias"]).without("litellm", {"model": "m", "team_alias": "ann@acme.example"})
    assert "ann" not in json.dumps(dict(mailed))
    assert PersonalLabels().without("vllm", {"user": "1", "model_name": "m"}) == {"user": "1", "model_name": "m"}
    assert PersonalLabels(["team_alias"]).without("litellm", dict(kept)) == kept
