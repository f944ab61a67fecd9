"""Hostile answers through the real landing: a clear failure or counted rejects, in bounded memory, others unharmed.

Every payload goes to every kind of source that could meet it, in one fleet with a source that is well. What only one
kind of source can meet is tested beside that source.
"""

import gzip
import json
import math
import time
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collectors.devices.spool_collector import SPOOL_SCHEMA, SpoolCollector
from collectors.limits import Limits
from collectors.protocols.exposition import ExpositionPage
from collectors.protocols.mapped_files import FileMapping
from collectors.protocols.prometheus import EXPORT_KIND, PrometheusCollector
from collectors.protocols.sample_files import FilesCollector
from collectors.samples import SENTINEL_FROM, Batch, Window, sample_batch
from pipelines.landing import telemetry_landing
from pipelines.warehouse import database
from pipelines.warehouse.raw_tables import create_tables
from tests.given import CATALOGUE, WATTS, Samples
from tests.servers import fields_of, http_server, reply

pytestmark = pytest.mark.sampled

# A page is read at the moment it is asked: so the hostile day is today.
MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
TODAY = Window(MIDNIGHT, MIDNIGHT + timedelta(days=1))
NOON_MS = int(MIDNIGHT.timestamp()) * 1000 + 43_200_000
POWER = WATTS.metric
QUICK = Limits(answer_seconds=2.0)
UNWELL = {"UUID": 'GPU-"quoted"', "Hostname": "two\nlines\u2028", "pod": "\\back]]}{,ünï😀", 'na"me\n={,ü': '"'}
# Per series: labels and (milliseconds after noon, value); the first is there twice.
FLOOD = [
    (UNWELL, [(0, 250.0), (15_000, math.nan), (30_000, SENTINEL_FROM + 3.4e15), (45_000, -1.0), (60_000, math.inf)]),
    (UNWELL, [(0, 260.0), (75_000, 240.0)]),
    ({"UUID": "GPU-flood"}, [(n * 1000, math.nan) for n in range(5000)]),
]


# --- the same series in each kind of source ---------------------------------------------------------------------------


def number(value):
    return {"nan": "NaN", "inf": "+Inf"}.get(repr(value), repr(value))


def as_matrix(series):
    result = [
        {
            "metric": {"__name__": POWER, **labels},
            "values": [[(NOON_MS + ms) / 1000, number(value)] for ms, value in samples],
        }
        for labels, samples in series
    ]
    return orjson.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def as_export(series):
    special = {"nan": "null", "inf": '"Infinity"'}
    return b"".join(
        b'{"metric":%s,"values":[%s],"timestamps":[%s]}\n'
        % (
            orjson.dumps({"__name__": POWER, **labels}),
            ",".join(special.get(repr(value), repr(value)) for _, value in samples).encode(),
            ",".join(str(NOON_MS + ms) for ms, _ in samples).encode(),
        )
        for labels, samples in series
    )


def as_page(series):
    def quoted(text):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'

    lines = []
    for labels, samples in series:
        pairs = ",".join(f"{quoted(name)}={quoted(text)}" for name, text in labels.items())
        lines += [f"{POWER}{{{pairs}}} {number(value)} {NOON_MS + ms}" for ms, value in samples]
    return ("\n".join(lines) + "\n").encode()


def columns(series):
    rows = [(labels, ms, value) for labels, samples in series for ms, value in samples]
    return {
        "observed_at": pa.array([(NOON_MS + ms) * 1000 for _, ms, _ in rows]).view(pa.timestamp("us", "UTC")),
        "source_kind": ["dcgm_exporter"] * len(rows),
        "metric": [POWER] * len(rows),
        "labels": [json.dumps(labels, ensure_ascii=False) for labels, _, _ in rows],
        "value": [value for _, _, value in rows],
    }


def as_parquet(series):
    sink = pa.BufferOutputStream()
    table = pa.table(columns(series))
    pq.write_table(
        pa.table([table[name].cast(SPOOL_SCHEMA.field(name).type) for name in table.column_names], schema=SPOOL_SCHEMA),
        sink,
    )
    return sink.getvalue().to_pybytes()


def as_csv(series):
    held = columns(series)
    texts = ['"' + text.replace('"', '""') + '"' for text in held["labels"]]
    stamps = [NOON_MS + ms for _, samples in series for ms, _ in samples]
    lines = [f"{at},{text},{number(value)}" for at, text, value in zip(stamps, texts, held["value"], strict=True)]
    return ("\n".join(["at,labels,watts", *lines]) + "\n").encode()


# --- kinds of source --------------------------------------------------------------------------------------------------


@contextmanager
def served_url(answer_metric, kind):
    """The URL of a source of `kind` that answers through `answer_metric(handler)` where it is asked for POWER."""

    def answer(handler):
        path, fields = fields_of(handler)
        if kind == "page":
            answer_metric(handler)
        elif path.endswith("/label/__name__/values"):
            reply(handler, 200, orjson.dumps({"status": "success", "data": [POWER]}))
        elif path.endswith("/export") and kind == "prometheus":
            reply(handler, 404, b"404 page not found", "text/plain")
        elif path.endswith("/export") and '"up"' in fields["match[]"]:
            reply(handler, 200, b"", EXPORT_KIND)
        else:
            answer_metric(handler)

    with http_server(answer) as url:
        yield url


class PageCollector:
    """A page as a source of the landing: its readings of now. The agent looks at pages, and leaves them in a spool."""

    source = "unwell"

    def __init__(self, page):
        self.page, self.limits = page, page.limits

    def collect(self, window, families, register):
        self.page.families = {metric: family.source_kind for metric, family in families.items()}
        readings = self.page.look()
        for metric, series in self.page.unknown.items():
            register.unknown(metric, series)
        for reading in readings:
            family = families[reading.metric]
            series = register.series_id(family, json.loads(reading.labels))
            samples = sample_batch(*map(np.array, ([series], [reading.observed_us], [reading.value])))
            if window.start_us <= reading.observed_us < window.end_us:
                register.observe(samples)
                yield Batch(family.stream, samples)


@contextmanager
def served(answer_metric, kind):
    with served_url(answer_metric, kind) as url:
        if kind == "page":
            yield PageCollector(ExpositionPage(f"{url}/metrics", limits=QUICK))
        else:
            yield PrometheusCollector("unwell", url, attempts=2, backoff_seconds=0.01, limits=QUICK)


# Media type and spelling of a whole answer.
SERVED = {
    "prometheus": ("application/json", as_matrix),
    "victoria_metrics": (EXPORT_KIND, as_export),
    "page": ("text/plain", as_page),
}


def filed(path, body):
    path.write_bytes(body)
    if path.suffix == ".parquet":
        mapping = FileMapping(str(path), time="observed_at", metric="metric", labels_json="labels", value="value")
    else:
        mapping = FileMapping(str(path), time="at", time_unit="ms", labels_json="labels", values={POWER: "watts"})
    return FilesCollector("unwell", [mapping])


def spooled(folder, body):
    home = folder / "spool" / "host=n1" / f"date={MIDNIGHT.date()}"
    home.mkdir(parents=True)
    (home / "20260101-abc-1.parquet").write_bytes(body)
    return SpoolCollector("unwell", folder / "spool")


FILED = {
    "csv": (lambda folder, body: filed(folder / "watts.csv", body), as_csv),
    "csv.gz": (lambda folder, body: filed(folder / "watts.csv.gz", gzip.compress(body)), as_csv),
    "parquet": (lambda folder, body: filed(folder / "watts.parquet", body), as_parquet),
    "spool": (spooled, as_parquet),
}


# --- the fleet --------------------------------------------------------------------------------------------------------


class Fleet:
    """A warehouse into which an unwell source lands between two landings of a source that is well."""

    def __init__(self, path):
        self.connection = database.connect(path)
        create_tables(self.connection)
        points = [(MIDNIGHT + timedelta(seconds=n), 300.0) for n in range(100)]
        self.well = Samples("well").put(WATTS, {"UUID": "GPU-w"}, points)

    def land(self, collector):
        return telemetry_landing.land(self.connection, collector, TODAY, CATALOGUE, run_id="run")

    def lands(self, unwell):
        assert self.land(self.well).is_answered
        result = self.land(unwell)
        assert self.land(self.well).outcome == "unchanged"
        mine = "series_id in (select series_id from raw.series where source = 'well')"
        assert self.rows(f"select count(*), sum(value) from raw.power_samples where {mine}") == [(100, 30_000.0)]
        if result.outcome == "failed":
            assert self.rows("select count(*) from raw.power_samples") == [(100,)]
            assert self.rows("select distinct source from raw.series") == [("well",)]
        query = (
            "select outcome, rows, status, detail from raw.landings where source = 'unwell' order by rowid desc limit 1"
        )
        assert self.rows(query) == [(result.outcome, result.rows, result.status, result.detail)]
        return result

    def rows(self, query):
        return self.connection.execute(query).fetchall()


@pytest.fixture
def fleet(tmp_path):
    fleet = Fleet(str(tmp_path / "warehouse.duckdb"))
    with closing(fleet.connection):
        yield fleet


@pytest.fixture(scope="module")
def refusing_fleet(tmp_path_factory):
    """One for many failures: they leave nothing behind, which is what is asserted."""
    fleet = Fleet(str(tmp_path_factory.mktemp("fleet") / "warehouse.duckdb"))
    with closing(fleet.connection):
        yield fleet


# --- answers that are none --------------------------------------------------------------------------------------------


def cut(handler, body, kind):
    reply(handler, 200, body[: len(body) // 2], kind, Content_Length=str(len(body)), Connection="close")
    handler.close_connection = True


def dripped(handler, body, kind):
    reply(handler, 200, b"", kind, Content_Length=str(len(body)))
    for byte in body[:400]:
        handler.wfile.write(bytes([byte]))
        handler.wfile.flush()
        time.sleep(0.02)


LOGIN = b"<!doctype html><html><body>Sign in</body></html>\n"


def saying(status, body, kind=None, **headers):
    return lambda handler, _, own: reply(handler, status, body, kind or own, **headers)


# How it answers, given a whole answer and its media type; then, per kind of source, the status and why.
PAYLOADS = {
    "truncated by the network": (cut, ("200", "broke off"), ("200", "broke off"), ("200", "broke off")),
    "truncated by the server": (
        lambda handler, body, kind: reply(handler, 200, body[:-9], kind),
        ("200", "breaks off within a series"),
        ("200", "breaks off within a line"),
        (None, "truncated: its last line does not end"),
    ),
    "another content type": (
        lambda handler, body, _: reply(handler, 200, body, "image/png"),
        ("200", "answered image/png"),
        ("200", "answered image/png"),
        ("200", "answered image/png"),
    ),
    "a login page": (
        saying(200, LOGIN, "text/html"),
        ("200", "answered text/html"),
        ("200", "answered text/html"),
        ("200", "answered text/html"),
    ),
    "a login page under our type": (
        saying(200, LOGIN),
        ("200", "not JSON; a login page?"),
        ("200", "not a line of an export: <!doctype html>"),
        (
            None,
            "not a metrics page; 1 of 1 rows rejected, expected at most 0.5 of all: a line begins with '<!",
        ),
    ),
    "the way to a login page": (
        saying(302, b"", Location="ftp://sso.example/"),
        ("302", "redirects to ftp://sso.example/"),
        ("302", "redirects to ftp://sso.example/"),
        ("302", "redirects to ftp://sso.example/"),
    ),
    "no content": (saying(204, b""), ("204", "refused"), ("204", "refused"), ("204", "refused")),
    "nothing": (saying(200, b""), ("200", "not JSON"), None, (None, "truncated")),
    "401": (saying(401, b"no"), ("401", "refused: no"), ("401", "refused: no"), ("401", "refused")),
    "403": (saying(403, b"no"), ("403", "refused: no"), ("403", "refused: no"), ("403", "refused")),
    "429": (
        saying(429, b"", Retry_After="0"),
        ("429", "refused (2 attempts)"),
        ("429", "refused (2 attempts)"),
        ("429", "refused"),
    ),
    "500": (saying(500, b"oops"), ("500", "refused: oops"), ("500", "refused: oops"), ("500", "refused")),
    "binary": (
        saying(200, bytes(range(256)) * 50),
        ("200", "not JSON"),
        ("200", "breaks off within a line"),
        (None, "not UTF-8"),
    ),
    "a drip": (dripped, ("200", "longer than 2 s"), ("200", "longer than 2 s"), ("200", "longer than 2 s")),
}


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("kind", SERVED)
def test_an_answer_that_is_none_fails_alone_and_says_why(refusing_fleet, kind, payload):
    media_type, spell = SERVED[kind]
    answer, *expected = PAYLOADS[payload]
    whole = spell([({"UUID": "GPU-a"}, [(n * 1000, 250.0) for n in range(500)])])
    with served(lambda handler: answer(handler, whole, media_type), kind) as unwell:
        result = refusing_fleet.lands(unwell)
    failure = expected[list(SERVED).index(kind)]
    if failure is None:  # an export without a line is an honest answer
        assert (result.outcome, result.rows) == ("empty", 0)
        return
    status, reason = failure
    assert (result.outcome, result.rows, result.status) == ("failed", 0, status)
    assert reason in result.detail


def successful(data):
    return orjson.dumps({"status": "success", "data": data})


# JSON that parses, under the right media type: the answer, and the reason in the failure.
OTHER_SHAPES = {
    "an object without a status": (b'{"message":"hello"}', "status is not success: no status; it begins with '{"),
    "a vector": (
        successful({"resultType": "vector", "result": [{"metric": {}, "value": [1, "2"]}]}),
        "the result is not of type matrix but 'vector'",
    ),
    "a vector that says it is a matrix": (
        successful({"resultType": "matrix", "result": [{"metric": {"UUID": "GPU-a"}, "value": [NOON_MS / 1000, "2"]}]}),
        'a series has no list of values: \'{"metric":{"UUID":"GPU-a"},"value":[',
    ),
    "values by name": (
        successful({"resultType": "matrix", "result": [{"metric": {}, "values": {}}]}),
        'a series has no list of values: \'{"metric":{},"values":{}}\'',
    ),
}


@pytest.mark.parametrize("shape", OTHER_SHAPES)
def test_an_answer_of_another_shape_fails_by_what_it_says_and_is_never_empty(refusing_fleet, shape):
    body, reason = OTHER_SHAPES[shape]
    with served(lambda handler: reply(handler, 200, body), "prometheus") as unwell:
        result = refusing_fleet.lands(unwell)
    assert (result.outcome, result.rows, result.status) == ("failed", 0, "200")
    assert reason in result.detail
    assert result.url.endswith("/api/v1/query")


def test_an_export_of_another_shape_fails_by_what_it_says_and_is_never_empty(refusing_fleet):
    line = b'{"metric":{"__name__":"%s"},"values":{},"timestamps":{}}\n' % POWER.encode()
    with served(lambda handler: reply(handler, 200, line, EXPORT_KIND), "victoria_metrics") as unwell:
        result = refusing_fleet.lands(unwell)
    assert result.outcome == "failed"
    assert 'not a line of an export: {"metric"' in result.detail


@pytest.mark.parametrize(
    ("names", "outcome", "reason"),
    [
        (successful([]), "empty", None),
        (successful(["another_metric"]), "empty", None),
        (
            successful({"names": [POWER]}),
            "failed",
            '"names":["DCGM_FI_DEV_POWER_USAGE"]}}\', expected a list of metric',
        ),
        (successful([{"name": POWER}]), "failed", "expected a list of metric names in 'data'"),
        (successful("all"), "failed", "expected a list of metric names in 'data'"),
        # Without names, as with null (an empty list of some servers), every family is asked for.
        (successful(None), "landed", None),
        (b'{"message":"no such route"}', "landed", None),
    ],
)
def test_a_list_of_names_of_another_shape_is_not_a_server_without_metrics(fleet, names, outcome, reason):
    whole = as_matrix([({"UUID": "GPU-a"}, [(0, 250.0)])])

    def answer(handler):
        path, fields = fields_of(handler)
        if path.endswith("/label/__name__/values"):
            reply(handler, 200, names)
        elif path.endswith("/export"):
            reply(handler, 404, b"404 page not found", "text/plain")
        else:
            reply(handler, 200, whole if POWER in fields["query"] else as_matrix([]))

    with http_server(answer) as url:
        result = fleet.lands(PrometheusCollector("unwell", url, attempts=1))
    assert result.outcome == outcome
    assert reason is None or reason in result.detail


def test_a_server_that_has_nothing_in_the_window_is_empty_and_no_failure(fleet):
    with served(lambda handler: reply(handler, 200, as_matrix([])), "prometheus") as unwell:
        result = fleet.lands(unwell)
    assert (result.outcome, result.rows, result.detail) == ("empty", 0, None)


BROKEN_FILES = {
    "truncated": lambda body: body[: len(body) // 2],
    "a login page": lambda _: LOGIN,
    "nothing": lambda _: b"",
    "binary": lambda _: bytes(range(256)) * 50,
}


@pytest.mark.parametrize("payload", BROKEN_FILES)
@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "spool"])
def test_a_file_that_is_none_fails_alone_and_is_named(refusing_fleet, tmp_path, kind, payload):
    make, spell = FILED[kind]
    whole = spell([({"UUID": "GPU-a"}, [(n * 1000, 250.0) for n in range(500)])])
    if payload == "truncated" and kind.startswith("csv"):  # its lines are all it has
        whole = whole.replace(b"}", b"")
    result = refusing_fleet.lands(make(tmp_path, BROKEN_FILES[payload](whole)))
    assert (result.outcome, result.rows) == ("failed", 0)
    if payload == "truncated" and kind.startswith("csv"):
        assert result.detail.startswith(
            "250 of 250 rows rejected, expected at most 0.5 of all (limits.bad_rows_ratio): "
        )
        assert "/watts.csv" in result.detail and ", expected a JSON object" in result.detail
    else:
        assert str(tmp_path) in f"{result.url} {result.detail}"


def test_a_spool_with_one_broken_file_lands_the_others_and_names_it(fleet, tmp_path):
    unwell = spooled(tmp_path, as_parquet([({"UUID": "GPU-a"}, [(0, 250.0)])]))
    broken = tmp_path / "spool" / "host=n2" / f"date={MIDNIGHT.date()}" / "20260101-abc-1.parquet"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"PAR1 but no more")
    result = fleet.lands(unwell)
    assert (result.outcome, result.rows) == ("landed", 1)
    assert result.detail.startswith(f"{broken}: ")


def test_a_spool_file_of_endless_rows_is_left_alone(refusing_fleet, tmp_path, monkeypatch):
    monkeypatch.setattr("collectors.devices.spool_collector.MOST_ROWS_PER_FILE", 499)
    result = refusing_fleet.lands(
        spooled(tmp_path, as_parquet([({"UUID": "GPU-a"}, [(n, 250.0) for n in range(500)])]))
    )
    assert result.outcome == "failed"
    assert result.detail.endswith(".parquet: 500 rows, of at most 499 that a file may hold")


# --- answers that are whole, and full of rubbish ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*SERVED, *FILED])
def test_floods_and_odd_labels_land_with_their_rejects_counted(fleet, tmp_path, kind):
    with ExitStack() as stack:
        if kind in SERVED:
            media_type, spell = SERVED[kind]
            body = spell(FLOOD)
            unwell = stack.enter_context(served(lambda handler: reply(handler, 200, body, media_type), kind))
        else:
            make, spell = FILED[kind]
            unwell = make(tmp_path, spell(FLOOD))
        result = fleet.lands(unwell)
    assert (result.outcome, result.rows, result.detail) == ("landed", 5007, None)
    found = fleet.rows("""
        select labels, samples, rejects, duplicates, falls, first_value, last_value
        from raw.series_chunks join raw.series using (series_id) where series.source = 'unwell' order by rejects
    """)
    labels = [{name: text for name, text in json.loads(row[0]).items() if name != "instance"} for row in found]
    assert labels == [UNWELL, {"UUID": "GPU-flood"}]
    # A source that adds to its day holds each time once.
    adds = getattr(unwell, "is_additive", False)
    assert found[0][1:] == ((2, 4, 0, 1, 260.0, 240.0) if adds else (3, 4, 1, 1, 260.0, 240.0))
    assert found[1][1:] == (0, 5000, 0, 0, None, None)
    assert fleet.rows("select count(*) from raw.power_samples") == [(100 + (5006 if adds else 5007),)]
