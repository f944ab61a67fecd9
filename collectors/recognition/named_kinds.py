"""Files that are known by name and are no source: a metrics page of one moment, and what tools print for people.

Add here what people will point at, with what to give instead. Keep out anything that can be read.
"""

from __future__ import annotations

import re

from collectors.formats.openings import Opening
from collectors.recognition.recognised import RecognisedFile

_SAMPLE = re.compile(
    r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{.*\})?\s+[-+]?(?:[0-9.]|nan|inf)\S*(?:\s+\d+)?\s*$", re.IGNORECASE
)
_TYPED = re.compile(r"^# (?:HELP|TYPE|UNIT) (\S+)")
# What a file has at the beginning of a line -> what it is, and what is read instead.
_NAMED = (
    (r"\|\s*NVIDIA-SMI |^\s*=+NVSMI LOG=+", "nvidia_smi_screen", "is nvidia-smi's table for people; log with"
     " `nvidia-smi --query-gpu=timestamp,uuid,power.draw --format=csv -l 1`"),
    (r"^=+ ?ROCm System Management Interface", "rocm_smi_screen", "is rocm-smi's table for people; log with"
     " `amd-smi monitor -w 1 --csv`"),
    (r"^:::MLLOG ", "mlperf_loadgen", "is MLPerf LoadGen's detail log; the results are in the round's"
     " summary_results.json, the run's start and end belong into run_windows"),
    (r"^MLPerf Results Summary", "mlperf_loadgen_summary", "is MLPerf LoadGen's summary of one run; the results that"
     " are read are in the round's summary_results.json"),
    (r"^Time,\d\d-\d\d-\d{4} \d\d:\d\d:\d\d\.\d+,Watts,", "mlperf_power", "is the power log of MLPerf's PTDaemon; write"
     " its time and watts into a CSV with a header (docs/sources/wall_meter.md)"),
    (r"^\[\d{4}-\d\d-\d\dT[\d:.]+Z\] \"[A-Z]+ ", "envoy_text", "is Envoy's access log as text, which has no tokens;"
     " write it as JSON with gen_ai.usage (docs/sources/access_logs.md)"),
    (r"^\S+ \S+ \S+ \[\d\d/[A-Z][a-z]{2}/\d{4}:[\d:]+ [+-]\d{4}\] \"", "web_server_log", "is a web server's access log,"
     " which has no tokens; log JSON with usage (docs/sources/access_logs.md)"),
    (r"Avg (?:prompt|generation) throughput", "vllm_log", "is vLLM's own log, whose rates are rounded means; record its"
     " /metrics page with the agent (docs/agent.md)"),
    (r"<nvidia_smi_log>", "nvidia_smi_xml", "is one reading of `nvidia-smi -x`; log with"
     " `nvidia-smi --query-gpu=timestamp,uuid,power.draw --format=csv -l 1`"),
    (r"^(?:\S+\t)*PkgWatt\b", "turbostat", "is turbostat's log of CPU packages; record them with node_exporter"
     " (docs/sources/node_exporter.md)"),
    (r"^\s*Instantaneous power reading:", "ipmitool_dcmi", "is one reading of `ipmitool dcmi`; record the BMC with"
     " ipmi_exporter (docs/sources/ipmi_exporter.md)"),
    (r"^\s*JobID(?:\|| +)[^\n]*\n[- ]*-{3,}", "sacct_screen", "is sacct's table for people; write it with"
     " `sacct --parsable2 --format=JobID,JobName,Start,End,NodeList,ConsumedEnergyRaw`"),
)  # fmt: skip


def metrics_page(opening: Opening) -> RecognisedFile | None:
    """A `/metrics` page that was saved."""
    lines = [line for line in opening.lines if line.strip()]
    typed = [found[1] for line in lines if (found := _TYPED.match(line))]
    samples = [found[1] for line in lines if (found := _SAMPLE.match(line))]
    comments = sum(line.startswith("#") for line in lines)
    if not samples or len(samples) + comments < 0.9 * len(lines) or not (typed or "{" in opening.text):
        return None
    why = "is a metrics page of one moment, without history: let the agent record the page itself (docs/agent.md)"
    families = tuple(dict.fromkeys([*typed, *samples]))[:200]
    return RecognisedFile(opening.path, "metrics_page", "metrics page", reason=why, columns=families)


def named_only(opening: Opening) -> RecognisedFile | None:
    """What a tool wrote for people, with what is read instead."""
    for pattern, name, why in _NAMED:
        if re.search(pattern, opening.text, re.MULTILINE):
            return RecognisedFile(opening.path, name, "named only", reason=why)
    return None
