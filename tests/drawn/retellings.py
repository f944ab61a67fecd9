"""Retellings: what becomes of a world's series on their way, each of which leaves the truth as it is.

Add here what proxies, exporters, relabelling and monitoring make of series that a world has. A page is what one scrape
of an engine has, the process start last. Keep out how the series come to be (`sightings`), and which worlds a retelling
fits (`genes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

import numpy as np

from tests.drawn.exporters import OWN_POD
from tests.drawn.worlds import SPAN_SECONDS, Board, World
from tests.planted import DAY

Array = np.ndarray
# metric, labels, seconds after midnight, values
Seen = tuple[str, dict[str, str], Array, Array]
Page = Callable[[list[Seen]], Iterator[Seen]]
Stated = Mapping[str, list[dict[str, object]]]

START, RUNNING = "process_start_time_seconds", "vllm:num_requests_running"
PROMPTS, OUTPUT = "vllm:prompt_tokens_total", "vllm:generation_tokens_total"
# A label that no series is landed with: which of a cell's sources has it, and what the fleet file states of each.
SERVER = "__server__"
SERVERS: Mapping[str, dict[str, object]] = {"": {}, "later": {}, "deltas": {"temporality": "delta"}}
WORKERS = ((1 / 3, 1e3), (2 / 3, 9e4))  # of a page's tokens, and what each had counted at midnight
OVERLAP_SECONDS = 300.0
AWAY_SECONDS = 900.0
FIRST_TOKENS = 0.005  # of each answer, which SGLang's better counter lacks
PACKAGE = {"path": "/sys/class/powercap/intel-rapl:0", "index": "0"}


@dataclass(frozen=True)
class Retelling:
    """What becomes of all series of a world, and the rows of the fleet file that it takes."""

    reported: Callable[[World, Iterable[Seen]], Iterator[Seen]]
    stated: Callable[[World], Stated] = lambda world: {}


def is_engines(labels: Mapping[str, str]) -> bool:
    """Whether a series is of an engine's page."""
    return "pod" in labels and labels["job"] != "gpus"


def is_boards(labels: Mapping[str, str]) -> bool:
    """Whether a series is of a board."""
    return labels["job"] == "gpus"


def _is_counter(metric: str) -> bool:
    return "_tokens" in metric


# --- pages of engines -------------------------------------------------------------------------------------------------


def workers(step_seconds: float, *, has_start: bool) -> Page:
    """Two processes answer in turn, the first one three times of five; neither may report when it began."""

    def reported(page: list[Seen]) -> Iterator[Seen]:
        *series, (metric, labels, at, began) = page
        is_first = np.isin(np.floor(at / step_seconds) % 5, (1, 2, 4))
        # A process that began within the day counts from 0.
        is_old = began < 0
        for name, of, moments, values in series:
            shown = [part * values + of_old * is_old for part, of_old in WORKERS]
            yield name, of, moments, np.where(is_first, *shown) if _is_counter(name) else values
        if has_start:
            yield metric, labels, at, began + np.where(is_first, 0.0, 7.0)

    return reported


def sum_of_three(left_at: float) -> Page:
    """A federated sum of three parts without a process start, of which one begins anew."""

    def reported(page: list[Seen]) -> Iterator[Seen]:
        for name, labels, at, values in page[:-1]:
            # As much for each job that reads it, whichever samples it has.
            left = np.where(at >= left_at, 3e6, 0.0)
            yield name, labels, at, 9e6 + values - left if _is_counter(name) else values

    return reported


def part_away(left_at: float) -> Page:
    """A federated sum of three parts without a process start, of which one is away for a quarter of an hour."""

    def reported(page: list[Seen]) -> Iterator[Seen]:
        for name, labels, at, values in page[:-1]:
            is_away = (at >= left_at) & (at < left_at + AWAY_SECONDS)
            had = 3e6 + values / 3
            yield name, labels, at, 9e6 + values - np.where(is_away, had, 0.0) if _is_counter(name) else values

    return reported


def sglang_from(changed_at: float, *, is_upgrade: bool) -> Page:
    """A new process from then on: SGLang, where vLLM was, or one with another counter beside those of the old one."""

    def reported(page: list[Seen]) -> Iterator[Seen]:
        names = {PROMPTS: "sglang:prompt_tokens_total", OUTPUT: "sglang:generation_tokens_total"}
        names |= {RUNNING: "sglang:num_running_reqs", START: START}
        *_, (_, _, _, began) = page
        for name, labels, at, values in page:
            is_new = at >= changed_at
            anew = is_new & (began < changed_at)
            had = np.interp(changed_at, at, values) if len(at) else 0.0
            shown = values - np.where(anew, had, 0.0) if _is_counter(name) else values
            if name == START:
                yield name, labels, at, np.where(anew, changed_at, values)
                continue
            of = {one: text for one, text in labels.items() if one != "engine"}
            of |= {"engine_type": "unified", "tp_rank": "0", "pp_rank": "0"}
            if name in names:
                yield names[name], of, at[is_upgrade | is_new], shown[is_upgrade | is_new]
            if not is_upgrade:
                yield name, labels, at[~is_new], shown[~is_new]
            elif name == OUTPUT:
                better = (1 - FIRST_TOKENS) * shown[is_new]
                yield "sglang:realtime_tokens_total", {**of, "mode": "decode"}, at[is_new], better

    return reported


def deltas(random: Random, *, is_stated: bool) -> Page:
    """Each counter shows what came since the sample before, and requests end unevenly: on all counters alike, as a
    prompt is in the sum and in its part at once."""
    drawn = random.random()

    def reported(page: list[Seen]) -> Iterator[Seen]:
        for name, labels, at, values in page:
            of = labels | ({SERVER: "deltas"} if is_stated else {})
            if not _is_counter(name):
                yield name, of, at, values
                continue
            came = np.maximum(np.diff(values, prepend=values[:1]), 0.0)
            noise = Random(drawn)
            uneven = came * np.array([0.6 + 0.8 * noise.random() for _ in came])
            yield name, of, at, uneven * (came.sum() / uneven.sum() if uneven.sum() else 1.0)

    return reported


# --- series of a world ------------------------------------------------------------------------------------------------


def other_server_from(moved_at: float) -> Retelling:
    """Monitoring moves to another server; for five minutes both scrape."""

    def reported(world: World, series: Iterable[Seen]) -> Iterator[Seen]:
        for metric, labels, at, values in series:
            is_old, is_new = at < moved_at + OVERLAP_SECONDS, at >= moved_at
            yield metric, labels, at[is_old], values[is_old]
            yield metric, {SERVER: "later", **labels}, at[is_new], values[is_new]

    return Retelling(reported)


def service_address(step_seconds: float) -> Retelling:
    """One address is before the two replicas, which answer in turn; the fleet file has their pods."""

    def reported(world: World, series: Iterable[Seen]) -> Iterator[Seen]:
        pages: dict[str, list[Seen]] = {}
        for one in series:
            if not is_engines(one[1]):
                yield one
                continue
            metric, labels, at, values = one
            number = len(pages.setdefault(metric + labels["job"], [])) % 2
            is_its = np.isin(np.floor(at / step_seconds) % 5, (1, 2, 4)) == (number == 0)
            later = 0.0 if metric != START else 7.0 * number
            of = {name: text for name, text in labels.items() if name not in ("pod", "namespace", "container")}
            of["instance"] = _service(world)
            pages[metric + labels["job"]].append((metric, of, at[is_its], values[is_its] + later))
        for one, other in pages.values():
            at = np.concatenate([one[2], other[2]])
            order = np.argsort(at)
            yield one[0], one[1], at[order], np.concatenate([one[3], other[3]])[order]

    return Retelling(
        reported, lambda world: {"engines": [{"engine": _service(world), "pods": [f"llm/{world.name}-*"]}]}
    )


def _service(world: World) -> str:
    return f"{world.name}-svc:8000"


def of_one_name(kind: str) -> Retelling:
    """The engines have one pod's name: in two regions, of which one may have no label, or in two containers of it."""

    def reported(world: World, series: Iterable[Seen]) -> Iterator[Seen]:
        numbers = {engine.pod: number for number, engine in enumerate(world.engines.values())}
        for metric, labels, at, values in series:
            name = "exported_pod" if labels.get("exported_pod") in numbers else "pod"
            number = numbers.get(labels.get(name, ""))
            named = dict(labels)
            if number is not None:
                named[name] = f"{world.name}-0"
                if kind == "containers":
                    named["exported_container" if name == "exported_pod" else "container"] = f"engine-{number}"
                if is_engines(labels):
                    named["instance"] = f"{world.name}-0:{8000 + (number if kind == 'containers' else 0)}"
            if (kind == "regions" or (kind == "one region" and number)) and (is_boards(labels) or is_engines(labels)):
                named["region"] = f"region-{number or 0}"
            yield metric, named, at, values

    return Retelling(reported)


def bare_host() -> Retelling:
    """No pods: an engine's address is its host's name, and the fleet file has the engine of each board."""

    def reported(world: World, series: Iterable[Seen]) -> Iterator[Seen]:
        numbers = {engine.pod: number for number, engine in enumerate(world.engines.values())}
        for metric, labels, at, values in series:
            of = {name: text for name, text in labels.items() if name.removeprefix("exported_") not in OWN_POD}
            if is_engines(labels):
                of |= {"instance": f"{world.name}-n0", "job": f"{labels['job']}-{numbers[labels['pod']]}"}
            yield metric, of, at, values

    def stated(world: World) -> Stated:
        held = {one.board: world.engines[one.engine].model for one in world.holdings}
        during = {"start_at": f"{DAY}T00:00:00Z", "end_at": f"{DAY}T04:00:00Z"}
        return {"assignments": [{"device_uuid": uuid, "model": model, **during} for uuid, model in held.items()]}

    return Retelling(reported, stated)


def _shared(of_each: Callable[[int, Seen], Seen | None]) -> Retelling:
    """Of a board that two pods share: what becomes of each pod's series of it; that of neither is left out."""

    def reported(world: World, series: Iterable[Seen]) -> Iterator[Seen]:
        pods = sorted(engine.pod for engine in world.engines.values())
        for one in series:
            labels = one[1]
            pod = labels.get("exported_pod", labels.get("pod"))
            if not is_boards(labels):
                yield one
            elif pod in pods and (found := of_each(pods.index(pod), one)):
                yield found

    return Retelling(reported)


def slices_with_uuids() -> Retelling:
    """Two MIG instances of a board have UUIDs of their own, and the board's watts each."""

    def of_each(number: int, one: Seen) -> Seen:
        metric, labels, at, values = one
        return metric, {**labels, "UUID": labels["UUID"].replace("GPU-", f"MIG-{number}-"), "gpu": "0"}, at, values

    return _shared(of_each)


def one_pod_named() -> Retelling:
    """A time-sliced board's exporter names one of two pods; their pages name the node."""
    shared = _shared(lambda number, one: None if number else one)

    def reported(world: World, series: Iterable[Seen]) -> Iterator[Seen]:
        for metric, labels, at, values in shared.reported(world, series):
            yield metric, labels | ({"node": f"{world.name}-n0"} if is_engines(labels) else {}), at, values

    return Retelling(reported)


def pods_named_in_turn() -> Retelling:
    """A time-sliced board's exporter names each of two pods for half an hour."""

    def of_each(number: int, one: Seen) -> Seen:
        metric, labels, at, values = one
        is_its = np.floor(at / 1800.0) % 2 == number
        return metric, labels, at[is_its], values[is_its]

    return _shared(of_each)


def partitions() -> Retelling:
    """An AMD board in two partitions: the first one has the board's energy and watts, the other zeros."""

    def of_each(number: int, one: Seen) -> Seen:
        metric, labels, at, values = one
        is_activity = "activity" in metric
        of = {**labels, "gpu_id": str(number), "gpu_partition_id": str(number)}
        return metric, of, at, values if is_activity or not number else np.zeros(len(at))

    return _shared(of_each)


def host_is_the_exporter(renewed_at: float) -> Retelling:
    """dcgm-exporter's own pod is the host name, of which there is another one from then on; `node` has the node."""

    def reported(world: World, series: Iterable[Seen]) -> Iterator[Seen]:
        for metric, labels, at, values in series:
            if not is_boards(labels):
                yield metric, labels, at, values
                continue
            number = int(labels["Hostname"][-1])
            of = {**labels, "node": labels["Hostname"], "instance": f"{_address(world, number)}:9400"}
            is_new = at >= renewed_at
            for letter, chosen in (("a", ~is_new), ("b", is_new)):
                pod = f"dcgm-exporter-{letter * 4}{number}"
                yield metric, {**of, "Hostname": pod}, at[chosen], values[chosen]

    return Retelling(reported)


def packages_beside(step_seconds: float) -> Retelling:
    """The packages of a node's CPU, whose exporter has the boards' address and no name of the node."""

    def reported(world: World, series: Iterable[Seen]) -> Iterator[Seen]:
        addresses = set[str]()
        for metric, labels, at, values in series:
            if is_boards(labels):
                board = _board(world, labels)
                address = _address(world, int(board.node[-1]))
                addresses.add(address)
                yield metric, {**labels, "instance": f"{address}:9400"}, at, values
            else:
                yield metric, labels, at, values
        for address in sorted(addresses):
            at = np.arange(0.0, SPAN_SECONDS + 1.0, step_seconds)
            labels = {**PACKAGE, "instance": f"{address}:9100", "job": f"cpu-{world.name}"}
            yield "node_rapl_package_joules_total", labels, at, 5e3 + 100.0 * at

    return Retelling(reported)


def slower_from(slowed_at: float, step_seconds: float) -> Retelling:
    """Boards are read at every fourth step from then on."""

    def reported(world: World, series: Iterable[Seen]) -> Iterator[Seen]:
        for metric, labels, at, values in series:
            is_dropped = (at >= slowed_at) & (np.floor(at / step_seconds + 1e-6) % 4 > 0) & is_boards(labels)
            yield metric, labels, at[~is_dropped], values[~is_dropped]

    return Retelling(reported)


def held_for_two(step_seconds: float) -> Retelling:
    """The exporter reads its boards at every other step, and answers with what it read last."""

    def reported(world: World, series: Iterable[Seen]) -> Iterator[Seen]:
        for metric, labels, at, values in series:
            # While no scrape comes it reads on.
            is_after_stall = np.diff(at, prepend=at[:1]) > 1.5 * step_seconds
            is_new = is_after_stall | (np.floor(at / step_seconds + 1e-6) % 2 == 0)
            read = np.maximum.accumulate(np.where(is_new, np.arange(len(at)), 0))
            yield metric, labels, at, values[read] if is_boards(labels) else values

    return Retelling(reported)


def no_pages() -> Retelling:
    """The engines are not read: the gateway alone counts tokens."""

    def reported(world: World, series: Iterable[Seen]) -> Iterator[Seen]:
        yield from (one for one in series if not is_engines(one[1]))

    return Retelling(reported)


def gateways_in_line(tenants: tuple[str, ...] = ("acme", "zeta")) -> Retelling:
    """The engines are not read; behind LiteLLM another gateway counts the requests of some tenants, and names none."""

    def reported(world: World, series: Iterable[Seen]) -> Iterator[Seen]:
        sums: dict[tuple[str, str], dict[float, float]] = {}
        kinds = {
            "litellm_output_tokens_metric_total": "output",
            "litellm_input_tokens_metric_total": "input",
            "litellm_input_cached_tokens_metric_total": "input_cache_read",
        }
        for metric, labels, at, values in no_pages().reported(world, series):
            is_edge = labels["job"].startswith("gateway-")
            yield metric, labels | ({"namespace": "edge"} if is_edge else {}), at, values
            if metric in kinds and labels["api_key_alias"].endswith(tenants):
                of = sums.setdefault((labels["model"], kinds[metric]), {})
                for moment, value in zip(at.tolist(), values.tolist(), strict=True):
                    of[moment] = of.get(moment, 0.0) + value
        place = {"namespace": "mesh", "job": f"mesh-{world.name}", "instance": f"mesh-{world.name}:15020"}
        for (model, kind), of in sums.items():
            labels = {"gen_ai_token_type": kind, "gen_ai_request_model": model, "gen_ai_response_model": model, **place}
            at = np.array(sorted(of))
            yield "agentgateway_gen_ai_client_token_usage_sum", labels, at, np.array([of[one] for one in at.tolist()])

    return Retelling(reported)


def _board(world: World, labels: Mapping[str, str]) -> Board:
    return next(board for board in world.boards.values() if board.uuid in labels.values())


def _address(world: World, node: int) -> str:
    number = int(world.name.removeprefix("c"))
    return f"10.{number // 250}.{number % 250}.{node + 1}"
