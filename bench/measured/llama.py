"""A model of Llama's shape with random weights, and its generation with a static cache.

Add here what the accelerator computes. Keep out what is counted. It is plain PyTorch, because a CUDA graph of the
decode step needs the position in a tensor of ours, and the cache set back to the prompts for `decode` alone, which
releases of transformers do in different ways; a rehearsal compares its logits with those of transformers' Llama.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional as F

# Tokens of a prefill's step. It takes an eighth of a second on an H100: what an end cuts off is under 1 % of a stretch.
STEP_TOKENS = 4096
EPSILON = 1e-5
ROPE_BASE = 500_000.0
MAX_POSITIONS = 4096


class Llama:
    """The weights, and one pass of some tokens through them. `cache` is a pair of tensors (keys, values) per layer."""

    def __init__(self, sizes: dict[str, int], device: str, dtype: torch.dtype = torch.bfloat16) -> None:
        self.sizes, self.device, self.dtype = sizes, torch.device(device), dtype
        self.hidden, self.heads, self.kv_heads = sizes["hidden"], sizes["heads"], sizes["kv_heads"]
        self.head = self.hidden // self.heads
        generator = torch.Generator(self.device).manual_seed(1)

        def random(rows: int, columns: int) -> torch.Tensor:
            weights = torch.empty(rows, columns, device=self.device, dtype=dtype)
            return weights.normal_(0, 0.02, generator=generator)

        self.embedding = random(sizes["vocabulary"], self.hidden)
        self.output = random(sizes["vocabulary"], self.hidden)
        self.norm = torch.ones(self.hidden, device=self.device, dtype=dtype)
        self.layers = [
            {
                "queries_keys_values": random((self.heads + 2 * self.kv_heads) * self.head, self.hidden),
                "attended": random(self.hidden, self.hidden),
                "gate_and_up": random(2 * sizes["inner"], self.hidden),
                "down": random(self.hidden, sizes["inner"]),
            }
            for _ in range(sizes["layers"])
        ]
        steps = torch.arange(0, self.head, 2, device=self.device, dtype=torch.float32) / self.head
        angles = torch.outer(torch.arange(MAX_POSITIONS, device=self.device), ROPE_BASE**-steps).repeat(1, 2)
        self.cosines, self.sines = angles.cos().to(dtype), angles.sin().to(dtype)

    @property
    def parameters(self) -> int:
        """How many weights it has; the norms' are all 1 and share one vector."""
        matrices = [self.embedding, self.output, *(weights for layer in self.layers for weights in layer.values())]
        return sum(weights.numel() for weights in matrices) + (2 * len(self.layers) + 1) * self.hidden

    def cache(self, requests: int, tokens: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Room for so many tokens of so many requests."""
        shape = (requests, self.kv_heads, tokens, self.head)
        tensors = [torch.zeros(shape, device=self.device, dtype=self.dtype) for _ in range(2 * len(self.layers))]
        return list(zip(tensors[::2], tensors[1::2], strict=True))

    def last_logits(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        cache: list[tuple[torch.Tensor, torch.Tensor]],
        seen: int,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """The logits after the last of these tokens (requests × tokens), which are written to the cache.

        They attend to the first `seen` positions of the cache, where `mask` (tokens × seen) is 0;
        without a mask they are the first ones, and each attends to those before it.
        """
        state = F.embedding(tokens, self.embedding)
        cosines, sines = self.cosines.index_select(0, positions), self.sines.index_select(0, positions)
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            normed = F.rms_norm(state, (self.hidden,), self.norm, EPSILON)
            parts = F.linear(normed, layer["queries_keys_values"]).unflatten(-1, (-1, self.head)).transpose(1, 2)
            query, key, value = parts.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
            query, key = (part * cosines + _rotated(part) * sines for part in (query, key))
            keys.index_copy_(2, positions, key)
            values.index_copy_(2, positions, value)
            if mask is None:
                mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
            else:
                # Heads that share keys follow each other: as further tokens of one head they need no copies of keys.
                shared = query.reshape(query.shape[0], self.kv_heads, -1, self.head)
                of_all = mask.repeat(shared.shape[2] // mask.shape[0], 1)[None, None]
                mixed = F.scaled_dot_product_attention(shared, keys[:, :, :seen], values[:, :, :seen], attn_mask=of_all)
                mixed = mixed.reshape(query.shape)
            state = state + F.linear(mixed.transpose(1, 2).flatten(2), layer["attended"])
            gate, up = F.linear(F.rms_norm(state, (self.hidden,), self.norm, EPSILON), layer["gate_and_up"]).chunk(
                2, -1
            )
            state = state + F.linear(F.silu(gate) * up, layer["down"])
        return F.linear(F.rms_norm(state[:, -1], (self.hidden,), self.norm, EPSILON), self.output)


def _rotated(part: torch.Tensor) -> torch.Tensor:
    first, second = part.chunk(2, -1)
    return torch.cat((-second, first), -1)


class LlamaEngine:
    """An `Engine`: greedy, in lockstep, the end of a sequence ignored."""

    def __init__(self, sizes: dict[str, int], device: str = "cuda") -> None:
        self.model = Llama(sizes, device)
        self.mode = "eager"
        self.graph: torch.cuda.CUDAGraph | None = None
        self.cache: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._finish()

    @torch.inference_mode()
    def start(self, requests: int, prompt_tokens: int, output_tokens: int) -> None:
        model = self.model
        self.graph, self.cache, self.mode = None, [], "eager"
        if model.device.type == "cuda":
            torch.cuda.empty_cache()
        # The kernels for a mask want a length that is a multiple of 8.
        self.length = -(-(prompt_tokens + output_tokens) // 64) * 64
        self.prompt = torch.randint(model.sizes["vocabulary"], (requests, prompt_tokens), device=model.device)
        self.tokens = self.prompt[:, :1].clone()
        self.position = torch.full((1,), prompt_tokens, device=model.device)
        self.every_position = torch.arange(self.length, device=model.device)
        self.cache = model.cache(requests, self.length)
        for _ in self.prefill():
            pass
        if output_tokens > 1 and model.device.type == "cuda":
            self._capture()

    @torch.inference_mode()
    def prefill(self) -> Iterator[int]:
        requests, total = self.prompt.shape
        most = max(1, min(total, STEP_TOKENS // requests))
        for first in range(0, total, most):
            end = min(total, first + most)
            positions, mask = self.every_position[first:end], None
            if first:
                mask = self._mask(self.every_position[:end] <= positions[:, None])
            logits = self.model.last_logits(self.prompt[:, first:end], positions, self.cache, end, mask)
            self._finish()
            if end == total:
                self.tokens.copy_(logits.argmax(-1, keepdim=True))
                self.rewind()
            yield end - first

    @torch.inference_mode()
    def rewind(self) -> None:
        self.position.fill_(self.prompt.shape[1])

    @torch.inference_mode()
    def decode(self) -> None:
        if self.graph is None:
            self._step()
        else:
            self.graph.replay()
        self._finish()

    def _step(self) -> None:
        mask = self._mask((self.every_position <= self.position)[None])
        logits = self.model.last_logits(self.tokens, self.position, self.cache, self.length, mask)
        self.tokens.copy_(logits.argmax(-1, keepdim=True))
        self.position.add_(1)

    def _mask(self, is_seen: torch.Tensor) -> torch.Tensor:
        nothing = torch.zeros((), device=is_seen.device, dtype=self.model.dtype)
        return torch.where(is_seen, nothing, torch.finfo(self.model.dtype).min)

    def _capture(self) -> None:
        """Without a graph the host would launch each of a step's hundreds of kernels, slower than they run."""
        try:
            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(2):
                    self._step()
            torch.cuda.current_stream().wait_stream(aside)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._step()
            self.graph, self.mode = graph, "CUDA graph"
        except RuntimeError as error:
            self.mode = f"eager, because the graph failed: {error}"
        self.rewind()

    def _finish(self) -> None:
        if self.model.device.type == "cuda":
            torch.cuda.synchronize()
