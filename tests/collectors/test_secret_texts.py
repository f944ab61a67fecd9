"""A secret in what others send is masked, however they spell it; a text without one stays as it is, byte for byte."""

import base64
import html
import json
from urllib.parse import quote, quote_plus

import orjson
import pytest

from collectors.protocols import postgresql_uris
from collectors.protocols.exposition import ExpositionPage
from collectors.protocols.grid_apis import UkCarbonIntensityCollector
from collectors.protocols.prometheus import PrometheusCollector
from collectors.samples import SourceError
from collectors.secret_texts import Secrets
from tests.collectors.test_prometheus import FAMILIES, HOUR
from tests.servers import fields_of, http_server, reply

PASSWORD = "p@ss/w+rd: «ü»&<\"'\\ 5"
TOKEN = "glpat-7Hq_X2-nUz9A"


def masked(text, *secrets, **pair):
    known = Secrets()
    for secret in secrets:
        known.add(secret, **pair)
    return known.masked(text)


def lower(text):
    """Percent-encoding with small digits."""
    return "".join(f"%{one[:2].lower()}{one[2:]}" if n else one for n, one in enumerate(text.split("%")))


def units(text):
    """The numbers of UTF-16, which JSON's escapes are."""
    encoded = text.encode("utf-16-be")
    return [int.from_bytes(encoded[n : n + 2], "big") for n in range(0, len(encoded), 2)]


def everything(secret):
    return "".join(f"%{byte:02X}" for byte in secret.encode())


SPELLINGS = {
    "as it is": lambda secret: secret,
    "percent-encoded": lambda secret: quote(secret, safe=""),
    "percent-encoded in small letters": lambda secret: lower(quote(secret, safe="")),
    "percent-encoded in part": lambda secret: quote(secret, safe="/:@&+"),
    "percent-encoded as a form": quote_plus,
    "percent-encoded in every character": everything,
    "percent-encoded twice": lambda secret: quote(quote(secret, safe=""), safe=""),
    "JSON": lambda secret: json.dumps(secret)[1:-1],
    "JSON with letters beyond ASCII": lambda secret: json.dumps(secret, ensure_ascii=False)[1:-1],
    "JSON with escaped slashes": lambda secret: json.dumps(secret)[1:-1].replace("/", "\\/"),
    "JSON in numbers": lambda secret: "".join(f"\\u{unit:04x}" for unit in units(secret)),
    "JSON in numbers with capitals": lambda secret: "".join(f"\\u{unit:04X}" for unit in units(secret)),
    "JSON in JSON": lambda secret: json.dumps(json.dumps(secret))[3:-3],
    "HTML": html.escape,
    "HTML in decimal numbers": lambda secret: "".join(f"&#{ord(one)};" for one in secret),
    "HTML in hexadecimal numbers": lambda secret: "".join(f"&#x{ord(one):X};" for one in secret),
    "HTML with leading zeros": lambda secret: "".join(f"&#00{ord(one)};" for one in secret),
    "base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "base64 for URLs": lambda secret: base64.urlsafe_b64encode(secret.encode()).decode(),
    "base64 without padding": lambda secret: base64.b64encode(secret.encode()).decode().rstrip("="),
}


@pytest.mark.parametrize("secret", [PASSWORD, TOKEN, "hunter2", "😀 smile"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_secret_is_masked_however_it_is_spelled(spelling, secret):
    sent = f"the token «{SPELLINGS[spelling](secret)}» is not valid"
    assert masked(sent, secret) == "the token «***» is not valid"


def test_named_characters_of_html_are_masked():
    assert masked("no p&commat;ss&sol;word&plus;1&excl; here", "p@ss/word+1!") == "no *** here"
    assert masked("no a&ampb&ltc here", "a&b<c") == "no *** here"


@pytest.mark.parametrize("before", ["", "u", "us", "use"])
@pytest.mark.parametrize("after", ["", "x", "xy"])
def test_a_secret_within_a_longer_text_in_base64_is_masked_at_each_place(before, after):
    """Basic authentication has it behind the user's name, wherever that ends in a group of three bytes."""
    encoded = base64.b64encode(f"{before}{PASSWORD}{after}".encode()).decode()
    found = masked(f"Basic {encoded}.", PASSWORD)
    assert "***" in found
    # What is left of it is its neighbours' alone.
    rest = found.removeprefix("Basic ").removesuffix(".")
    assert len(rest) <= len("***") + 4 + 4


def test_user_and_password_together_are_masked_whole():
    for sent in ("bob:s3cret", "Ym9iOnMzY3JldA==", "bob%3As3cret", "bob&#58;s3cret"):
        assert masked(f"refused {sent}", "s3cret", user="bob") == "refused ***"
    assert masked("refused Ym9iOmFi", "ab", user="bob") == "refused ***"


def test_a_password_that_a_url_has_encoded_is_masked_in_both_forms():
    for sent in ("p%40ss", "p@ss", "p%2540ss"):
        assert masked(f"as {sent}!", "p%40ss") == "as ***!"


INNOCENT = [
    "the answer is over 67108864 bytes; a login page or another server?",
    "label pod=\"llm-abc-0\" is no number: got 'tp0', expected digits",
    '{"metric":{"__name__":"up","instance":"gpu-a:8000"},"values":[1,2]}',
    "dGhlIHF1aWNrIGJyb3duIGZveA== %20%2F&amp;&#47;\\u00e4\\/ a+b c:d",
]


@pytest.mark.parametrize("text", INNOCENT)
def test_a_text_without_a_secret_stays_byte_for_byte(text):
    assert masked(text) == text
    assert masked(text, PASSWORD, TOKEN, "hunter2", None, "") == text
    # A text of so few letters is in half of all words.
    assert masked(text, "a", "is", "gpu", "0", "e") == text
    assert masked(text, "abc", user="bob") == text


def test_a_short_secret_is_masked_where_it_is_a_value():
    assert masked("http://bob:abc@host and password='abc' or pw=abc", "abc") == (
        "http://bob:***@host and password='***' or pw=***"
    )
    assert masked("abcde and pw=abcde and a.abc", "abc") == "abcde and pw=abcde and a.abc"


def test_a_long_secret_in_a_long_text_takes_no_time_that_grows_with_both():
    secret, text = "x%2" * 500, "x%2" * 20_000
    assert masked(f"{text}y", secret).count("***") == 40


# --- what servers send ------------------------------------------------------------------------------------------------


@pytest.fixture
def echoed(monkeypatch):
    """What each kind of collector reports of a server that sends its secret back: by kind, given how it spells it."""
    monkeypatch.setenv("A_TOKEN", PASSWORD.replace("«ü»", "Ax"))
    secret = PASSWORD.replace("«ü»", "Ax")

    def reports(status, media_type, body):
        def answer(handler):
            fields_of(handler)
            reply(handler, status, body(secret), media_type)

        with http_server(answer) as url:
            collectors = {
                "page": ExpositionPage(f"{url}/metrics", bearer_env="A_TOKEN").look,
                "prometheus": lambda: list(
                    PrometheusCollector("c", url, attempts=1, bearer_env="A_TOKEN").collect(HOUR, FAMILIES, None)
                ),
                "grid": lambda: UkCarbonIntensityCollector("g", url, region_id=None, bearer_env="A_TOKEN").collect(
                    HOUR
                ),
            }
            for ask in collectors.values():
                with pytest.raises(SourceError) as failure:
                    ask()
                yield str(failure.value), secret

    return reports


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_report_of_a_refusal_has_the_secret_that_the_server_repeats(echoed, spelling):
    def body(secret):
        return f"<p>token {SPELLINGS[spelling](secret)} is wrong</p>".encode()

    for report, _ in echoed(403, "text/html", body):
        assert "token *** is wrong" in report


def test_a_secret_at_the_place_where_a_message_is_cut_is_not_shown_in_part(echoed):
    for report, secret in echoed(403, "text/html", lambda secret: b"." * 190 + secret.encode() + b"." * 90):
        assert secret[:4] not in report


def test_a_secret_in_an_answer_that_cannot_be_read_is_not_quoted(echoed):
    def body(secret):
        return orjson.dumps({"status": "error", "data": {"result": [{"values": secret}]}, "from": secret}) + b"\n"

    for kind in ("application/json", "text/plain"):
        for report, secret in echoed(200, kind, body):
            assert "p@ss" not in report
            assert secret not in report


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://bob:hunter%322x@db/ledger",
        "host=db user=bob password=hunter22x",
        "host=db password = 'hunter22x' user=bob",
        "postgresql://db/ledger?password=hunter22x",
    ],
)
def test_what_a_database_says_and_where_it_is_have_no_password(uri):
    sent = f"no hunter22x or hunter%32%32x or {base64.b64encode(b'bob:hunter22x').decode()} in {uri}"
    found = postgresql_uris.secrets_of(uri).masked(sent)
    assert "hunter" not in found
    assert "aHVudGVy" not in found
    assert found.startswith("no *** or *** or ")
    assert "hunter" not in postgresql_uris.shown(uri, "LEDGER_DSN")
