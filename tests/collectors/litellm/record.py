"""Records a real LiteLLM proxy: its /metrics page, looked at four times, and the log of the same requests.

Run it with the Python of an environment that has `litellm[proxy]` and `prometheus-client` (README.md); it writes the
fixtures beside itself. The proxy has no database: keys, teams and their names come from `custom_auth`. The model is the
small server below, which answers with fixed token counts. Keep out prompts, names of people and addresses: the log is
written without messages, and only of the families below is the page kept.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).parent
UPSTREAM_PORT, PROXY_PORT = 18901, 18902
KEPT = re.compile(r"(# (HELP|TYPE) )?(litellm_\w*tokens_metric|litellm_proxy_total_requests_metric|process_start_time)")
# Key -> team, name of the team, name of the key. The third belongs to no team.
KEYS = {
    "sk-search": ("team-1", "search", "search-prod"),
    "sk-ads": ("team-2", "ads", "ads-batch"),
    "sk-lab": (None, None, "lab"),
}
# (key, model, prompt, cached and output tokens), in three batches with a look at the page after each.
BATCHES = [
    [("sk-search", "chat", 120, 0, 30), ("sk-search", "chat", 180, 128, 45), ("sk-ads", "chat", 900, 512, 12)],
    [("sk-ads", "chat", 1000, 896, 9), ("sk-lab", "code", 64, 0, 700), ("sk-search", "chat", 240, 128, 61)],
    [("sk-lab", "code", 80, 64, 350), ("sk-lab", "chat", 10, 0, 5), ("sk-ads", "chat", 1100, 1024, 7)],
]
AUTH = """
from litellm.proxy._types import UserAPIKeyAuth

KEYS = {keys!r}


async def user_api_key_auth(request, api_key):
    team, team_alias, alias = KEYS[api_key.removeprefix("Bearer ")]
    return UserAPIKeyAuth(
        api_key=api_key, team_id=team, team_alias=team_alias, key_alias=alias, user_role="internal_user"
    )
"""
LOG = """
import json

from litellm.integrations.custom_logger import CustomLogger


LEFT_OUT = {{
    "messages", "response", "hidden_params", "model_map_information", "cost_breakdown", "requester_ip_address",
    "user_agent", "request_tags", "standard_built_in_tools_params", "model_parameters",
}}
METADATA = {{"user_api_key_hash", "user_api_key_alias", "user_api_key_team_id", "user_api_key_team_alias",
    "user_api_key_user_id", "user_api_key_end_user_id", "usage_object"}}


class SpendFile(CustomLogger):
    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        payload = {{k: v for k, v in kwargs["standard_logging_object"].items() if k not in LEFT_OUT}}
        payload["metadata"] = {{k: v for k, v in payload["metadata"].items() if k in METADATA}}
        with open({path!r}, "a", encoding="utf-8") as lines:
            lines.write(json.dumps(payload, default=str) + "\\n")


spend_file = SpendFile()
"""
CONFIG = """
model_list:
  - {{model_name: chat, litellm_params: {{model: openai/chat, api_base: "http://127.0.0.1:{port}/v1", api_key: none}}}}
  - {{model_name: code, litellm_params: {{model: openai/code, api_base: "http://127.0.0.1:{port}/v1", api_key: none}}}}
general_settings: {{custom_auth: keys.user_api_key_auth}}
litellm_settings: {{callbacks: [prometheus, spend_file.spend_file], turn_off_message_logging: true}}
"""


class Engine(BaseHTTPRequestHandler):
    """Answers a chat completion whose prompt is "PROMPT CACHED OUTPUT" with these counts."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt, cached, output = map(int, asked["messages"][0]["content"].split())
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        message = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ok"}}
        answer = {
            "id": f"chatcmpl-{time.time_ns()}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": asked["model"],
        }
        body = json.dumps({**answer, "choices": [message], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def ask(path: str, key: str | None = None, asked: object = None) -> str:
    body = None if asked is None else json.dumps(asked).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PROXY_PORT}{path}", body)
    request.add_header("Content-Type", "application/json")
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode()


def look(nth: int) -> None:
    lines = [line for line in ask("/metrics/", "sk-lab").splitlines() if KEPT.match(line) and "_created" not in line]
    (HERE / f"page_{nth}.prom").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with (HERE / "looks.jsonl").open("a", encoding="utf-8") as looks:
        looks.write(json.dumps({"page": f"page_{nth}.prom", "at": time.time()}) + "\n")


def record() -> None:
    for old in [*HERE.glob("page_*.prom"), HERE / "looks.jsonl", HERE / "log.jsonl"]:
        old.unlink(missing_ok=True)
    threading.Thread(
        target=ThreadingHTTPServer(("127.0.0.1", UPSTREAM_PORT), Engine).serve_forever, daemon=True
    ).start()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "keys.py").write_text(AUTH.format(keys=KEYS), encoding="utf-8")
        Path(folder, "spend_file.py").write_text(LOG.format(path=str(HERE / "log.jsonl")), encoding="utf-8")
        Path(folder, "config.yaml").write_text(CONFIG.format(port=UPSTREAM_PORT), encoding="utf-8")
        command = [str(Path(sys.executable).parent / "litellm"), "--config", "config.yaml", "--port", str(PROXY_PORT)]
        environment = {**os.environ, "PYTHONPATH": folder, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        environment["LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"] = "true"
        proxy = subprocess.Popen([*command, "--host", "127.0.0.1"], cwd=folder, env=environment)
        try:
            for _ in range(180):
                try:
                    ask("/health/liveliness")
                    break
                except OSError:
                    time.sleep(1)
            look(0)
            for nth, batch in enumerate(BATCHES, 1):
                for key, model, *tokens in batch:
                    message = {"role": "user", "content": " ".join(map(str, tokens))}
                    ask("/v1/chat/completions", key, {"model": model, "messages": [message]})
                time.sleep(5)  # callbacks run after the answer
                look(nth)
        finally:
            proxy.terminate()
            proxy.wait(30)


if __name__ == "__main__":
    record()
