"""What is measured, in which order and for how long.

Add a stretch here. Keep out how a stretch is run (`load`, `run`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

# The sizes of a model: of Llama 3 8B (8.03 billion parameters), and of one that is made in a second.
EIGHT_BILLION = {"hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "inner": 14336, "vocabulary": 128_256}
SMALL = {"hidden": 1024, "layers": 4, "heads": 16, "kv_heads": 8, "inner": 3584, "vocabulary": 32_000}


class Stretch(NamedTuple):
    """A load that is kept up for a while: so many requests at a time, all of one shape.

    `generate` computes the prompts and then the outputs. `prefill` computes prompts alone, each with its first output
    token. `decode` computes outputs alone, to prompts that are in the cache already.
    """

    kind: Literal["generate", "prefill", "decode"]
    concurrency: int
    prompt_tokens: int
    output_tokens: int

    @property
    def name(self) -> str:
        """Its name in every file: the window, and the tenant of its requests."""
        return f"{self.kind}_{self.prompt_tokens}_at_{self.concurrency}"


class Plan(NamedTuple):
    """A run. Stretches start at whole multiples of `stretch_seconds`, which divides 3,600: the grid they are booked on.

    From one to the next are `stretch_seconds`, for the next one's warm-up. `quiet_seconds` before and after a stretch
    nothing runs. A stretch that would end over `limit_seconds` after the start of the run is left out.
    """

    stretch_seconds: int
    idle_seconds: float
    quiet_seconds: float
    limit_seconds: float
    model: dict[str, int]
    stretches: tuple[Stretch, ...]


# In this order, so that what a slow start leaves out is what can be missed best. 532 seconds at most: a smoke run of
# 40, twice 30 idle, 15 for the model, 14 stretches and their warm-ups 420, less what the first need not wait.
FULL = Plan(
    stretch_seconds=15,
    idle_seconds=30,
    quiet_seconds=0.5,
    limit_seconds=530,
    model=EIGHT_BILLION,
    stretches=(
        *(Stretch("generate", requests, 128, 128) for requests in (1, 2, 4, 8, 16, 32, 64, 128)),
        Stretch("prefill", 16, 2048, 1),
        Stretch("decode", 16, 2048, 128),
        *(Stretch("generate", requests, 2048, 128) for requests in (1, 32, 16, 4)),
    ),
)
SMOKE = Plan(
    stretch_seconds=2,
    idle_seconds=2,
    quiet_seconds=0.25,
    limit_seconds=38,
    model=SMALL,
    stretches=(Stretch("generate", 4, 128, 16), Stretch("prefill", 4, 2048, 1), Stretch("decode", 4, 128, 16)),
)
