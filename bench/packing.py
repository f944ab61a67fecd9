"""A plan for a generated fleet: `python -m bench.packing --gpus 11000 --sites 4 --types 3`; prints what it cost.

The packing alone, on a fleet in which much can be shared: deployments at 4 to 40 % of their capacity that work at five
different hours, with noise of 15 % in each interval of four weeks. Keep out the marts (`answers`).
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import pandas as pd

from bench.children import own_peak_mib
from pipelines.analysis.packing import ENGINE_COLUMNS, plan, violations

INTERVALS = 28 * 288
GPUS_PER_NODE = 8
MEMORY_GIB = 80.0
GPUS_PER_DEPLOYMENT = 7.35  # (1 + 2 + 4 + 8) / 4 GPUs an engine, two engines in the mean


def fleet(gpus: int, sites: int, types: int, seed: int = 1) -> tuple[pd.DataFrame, pd.DataFrame]:
    """About so many GPUs in engines of 1, 2, 4 and 8, one to three of a deployment, as `packing.plan` reads them."""
    chance = np.random.default_rng(seed)
    hours = np.arange(INTERVALS) / 288
    deployments = round(gpus / GPUS_PER_DEPLOYMENT)
    loads = np.empty((deployments, INTERVALS), dtype=np.float32)
    rows, open_nodes, nodes = [], {}, 0
    for number in range(deployments):
        size, engines = int(chance.choice([1, 2, 4, 8])), int(chance.integers(1, 4))
        place = (f"site-{chance.integers(sites)}", f"type-{chance.integers(types)}")
        memory = chance.choice([0.12, 0.2, 0.25, 0.35, 0.45, 0.55, 0.7]) * MEMORY_GIB * chance.uniform(0.9, 1.1)
        wave = 1 + chance.uniform(0.3, 0.9) * np.sin(2 * np.pi * (hours + chance.choice([0.0, 0.1, 0.33, 0.5, 0.6])))
        noise = 1 + 0.15 * chance.standard_normal(INTERVALS)
        loads[number] = np.maximum(chance.uniform(0.04, 0.4) * wave * noise, 0)
        label = f"apart-{chance.integers(40)}" if chance.random() < 0.05 else ""
        for engine in range(engines):
            node, left = open_nodes.get(place, ("", 0))
            if left < size:
                nodes += 1
                node, left = f"node-{nodes}", GPUS_PER_NODE
            open_nodes[place] = (node, left - size)
            rows.append(
                {
                    "engine": f"{number}/{engine}",
                    "site": place[0],
                    "device_type": place[1],
                    "deployment": f"deployment-{number}",
                    "model": f"model-{number % 200}",
                    "gpus": size,
                    "memory_gib": memory,
                    "gpu_memory_gib": MEMORY_GIB,
                    "node": node,
                    "gpu_group": f"{node}:{GPUS_PER_NODE - left}",
                    "keep_apart": label,
                    "min_replicas": min(engines, 2),
                    "is_fixed": False,
                }
            )
    names = [f"deployment-{number}" for number in range(deployments)]
    return pd.DataFrame(rows, columns=list(ENGINE_COLUMNS)), pd.DataFrame(loads, index=names)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.packing", description=__doc__.partition("\n")[0])
    parser.add_argument("--gpus", type=int, required=True)
    parser.add_argument("--sites", type=int, required=True)
    parser.add_argument("--types", type=int, required=True)
    options = parser.parse_args()
    engines, loads = fleet(options.gpus, options.sites, options.types)
    began, busy = time.perf_counter(), time.process_time()
    made = plan(engines, loads)
    planned, busy = time.perf_counter(), time.process_time() - busy
    broken = violations(made, loads)
    figures = {
        "deployments": len(loads),
        "engines": len(engines),
        "gpus": int(engines["gpus"].sum()),
        "gpus_before": made.gpus_before,
        "gpus_after": made.gpus_after,
        "gpus_bound": made.gpus_bound,
        "gap_ratio": made.gap_ratio,
        "nodes_before": int(engines["node"].nunique()),
        "nodes_after": int(made.engines["target_node"].nunique()),
        "violations": len(broken),
        "plan_seconds": planned - began,
        "plan_cpu_seconds": busy,
        "check_seconds": time.perf_counter() - planned,
        "peak_mib": own_peak_mib(),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
