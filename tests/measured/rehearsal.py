"""`python -m tests.measured.rehearsal FOLDER`: a whole run with a model that only sleeps, in some 20 seconds."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measured.plan import SMOKE, Stretch
from bench.measured.run import run

STEP_SECONDS = 0.05
PLAN = SMOKE._replace(
    stretches=(Stretch("generate", 4, 16, 8), Stretch("prefill", 2, 32, 1), Stretch("decode", 4, 16, 8))
)


class Toy:
    """Each step takes 50 ms: a prompt is two of them, an output token is one."""

    mode = "toy"

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes

    def start(self, requests: int, prompt_tokens: int, output_tokens: int) -> None:
        self.prompt_tokens = prompt_tokens

    def prefill(self) -> Iterator[int]:
        for _ in range(2):
            self.decode()
            yield self.prompt_tokens // 2

    def rewind(self) -> None: ...

    def decode(self) -> None:
        time.sleep(STEP_SECONDS)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    sys.exit(run(PLAN, lambda: Toy, Path(sys.argv[1]), time.time()))
