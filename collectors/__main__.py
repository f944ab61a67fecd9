"""`wattledger-agent` (in a checkout `python -m collectors`): the agent, one look at a source, a recording into a file.

Add a subcommand here when a collector is useful by itself on a host. Keep out what the subcommands do.
"""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collectors.devices.agent import Sampler
    from collectors.devices.otlp_receiver import Receiver
    from collectors.devices.spool import Spool
    from collectors.protocols.exposition import ExpositionPage

# The extras of the agent's distribution with the package that each brings, and which a store's URLs need.
EXTRAS = {"s3": "s3fs", "gcs": "gcsfs", "azure": "adlfs", "otlp": "opentelemetry-proto"}
STORES = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure", "abfss": "azure"}
PAGE_SECRETS = ("bearer", "username", "password", "ca_file", "cert_file", "key_file")
EXAMPLES = """\
examples:
  wattledger-agent sample --nvml
  wattledger-agent sample --page http://localhost:8000/metrics
  wattledger-agent agent --nvml --page http://localhost:8000/metrics --spool /var/spool/wattledger
  wattledger-agent record --nvml --out recorded.parquet --minutes 15

`wattledger-agent COMMAND --help` has the details. Secrets are never options: name the variable that holds one.
"""


def parser() -> argparse.ArgumentParser:
    """The command line; tests read it too, to hold docs/agent.md to it."""
    root = argparse.ArgumentParser(
        prog="wattledger-agent",
        description="Read power and token telemetry on a host.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")

    agent = commands.add_parser("agent", help="sample until stopped, into a spool that a landing takes in")
    _add_sources(agent)
    agent.add_argument("--spool", required=True, metavar="PATH", help="a folder, a share, or any fsspec URL (s3://…)")
    agent.add_argument("--nvml-interval", type=_seconds, default=1.0, metavar="SECONDS", help="default: 1")
    agent.add_argument("--page-interval", type=_seconds, default=15.0, metavar="SECONDS", help="default: 15")
    agent.add_argument(
        "--rotate",
        type=_seconds,
        default=60.0,
        metavar="SECONDS",
        help="write a file this often, which is also what a crash loses at most (default: 60)",
    )

    agent.add_argument(
        "--otlp",
        type=_listening,
        metavar="HOST:PORT",
        help="receive OTLP over HTTP there, in a process that samples nothing: spans of model calls and metrics of the "
        "catalogue",
    )
    agent.add_argument(
        "--otlp-bearer-env", metavar="NAME", help="the variable that holds the token exporters must send"
    )

    sample = commands.add_parser("sample", help="look once and print what is there")
    _add_sources(sample)

    record = commands.add_parser("record", help="sample NVML for some minutes into one Parquet file")
    record.add_argument("--nvml", action="store_true", required=True, help="record this host's GPUs")
    record.add_argument("--out", type=Path, required=True, metavar="FILE.parquet")
    record.add_argument("--minutes", type=_seconds, default=15.0, help="default: 15; SIGINT or SIGTERM ends it earlier")
    record.add_argument("--nvml-interval", type=_seconds, default=1.0, metavar="SECONDS", help="default: 1")
    record.add_argument("--host", default=socket.gethostname(), metavar="NAME", help="default: this host's name")
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status: 0 done, 1 a source or the spool failed, 2 a wrong option."""
    options = parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    # The agent itself logs a request that fails, once.
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    return {"agent": _agent, "sample": _sample, "record": _record}[options.command](options)


def _add_sources(command: argparse.ArgumentParser) -> None:
    command.add_argument("--nvml", action="store_true", help="this host's GPUs")
    command.add_argument("--page", action="append", default=[], metavar="URL", help="a /metrics page; may be repeated")
    command.add_argument("--host", default=socket.gethostname(), metavar="NAME", help="default: this host's name")
    command.add_argument(
        "--families",
        type=Path,
        metavar="FILE",
        help="the metrics to keep of pages: a CSV with a column `metric`, or one name per line (default: the metric "
        "catalogue of Wattledger)",
    )
    command.add_argument(
        "--tenant-label",
        action="append",
        default=[],
        metavar="NAME",
        help="a label of a gateway's counters that names the tenant or team, kept for the fleet file's `tenant_labels` "
        "and `team_labels`; may be repeated",
    )
    command.add_argument("--bearer-file", metavar="FILE", help="the file of the pages' bearer token, read at each look")
    for kind in PAGE_SECRETS:
        command.add_argument(
            f"--{kind.replace('_', '-')}-env",
            metavar="NAME",
            help=f"the variable of the pages' {kind.replace('_', '-')}",
        )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


def _listening(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise argparse.ArgumentTypeError(f"expected HOST:PORT such as 127.0.0.1:4318, got {text!r}")
    return host.strip("[]"), int(port)


def _pages(options: argparse.Namespace) -> list[ExpositionPage]:
    from collectors.devices.agent import families_to_keep  # noqa: PLC0415 (--help must not wait for packages)
    from collectors.protocols.exposition import ExpositionPage  # noqa: PLC0415

    named = {"bearer_file", *(f"{kind}_env" for kind in PAGE_SECRETS)}
    secrets = {key: value for key, value in vars(options).items() if key in named}
    if options.bearer_env and options.bearer_file:
        raise ValueError("expected one of --bearer-env and --bearer-file")
    families = families_to_keep(options.families) if options.page else None
    return [
        ExpositionPage(url, families, host=options.host, tenant_labels=options.tenant_label, **secrets)
        for url in options.page
    ]


def _samplers(options: argparse.Namespace) -> list[Sampler]:
    """The NVML sampler, if asked for, then the pages. SystemExit 2 with one line where an option cannot be."""
    from collectors.devices.nvml import NvmlSampler  # noqa: PLC0415
    from collectors.source_errors import SourceError  # noqa: PLC0415

    if not options.nvml and not options.page and not getattr(options, "otlp", None):
        _refuse("nothing to look at: give --nvml, --page URL, or both")
    try:
        return [*([NvmlSampler(host=options.host)] if options.nvml else []), *_pages(options)]
    except (OSError, ValueError, SourceError) as error:
        _refuse(str(error))


def _agent(options: argparse.Namespace) -> int:
    from collectors.devices.agent import Watch, run_agent  # noqa: PLC0415
    from collectors.devices.nvml import NvmlSampler  # noqa: PLC0415
    from collectors.devices.spool import Spool  # noqa: PLC0415
    from collectors.devices.spool_writer import SpoolWriter  # noqa: PLC0415

    samplers = _samplers(options)
    if options.otlp and samplers:
        _refuse(
            "--otlp with --nvml or --page: what others send must not end the sampling. Run two agents, one for each"
        )
    try:
        spool = Spool(options.spool)
    except (ImportError, ValueError) as error:
        extra = STORES.get(options.spool.partition("://")[0].lower())
        is_missing = extra is not None and find_spec(EXTRAS[extra]) is None
        fix = f" (pip install 'wattledger-agent[{extra}]')" if is_missing else ""
        _refuse(f"--spool {options.spool}: {error}{fix}")
    watches = [
        Watch(sampler, options.nvml_interval if isinstance(sampler, NvmlSampler) else options.page_interval)
        for sampler in samplers
    ]
    receiver = _receiver(options, spool)
    if receiver is not None:
        receiver.start()
    status = run_agent(watches, SpoolWriter(spool, options.host, rotate_seconds=options.rotate))
    if receiver is not None:
        receiver.stop()
    spool.end_process(status)
    return status


def _receiver(options: argparse.Namespace, spool: Spool) -> Receiver | None:
    if options.otlp is None:
        return None
    from collectors.devices.agent import families_to_keep  # noqa: PLC0415
    from collectors.devices.otlp_receiver import Receiver  # noqa: PLC0415

    bearer = None
    if options.otlp_bearer_env is not None:
        bearer = os.environ.get(options.otlp_bearer_env)
        if not bearer:
            _refuse(f"environment variable {options.otlp_bearer_env} is not set")
    try:
        families = families_to_keep(options.families)
        return Receiver(options.otlp, spool, options.host, families, bearer=bearer, stated=options.tenant_label)
    except (OSError, ValueError) as error:
        _refuse(f"--otlp {':'.join(map(str, options.otlp))}: {error}")


def _sample(options: argparse.Namespace) -> int:
    from collectors.source_errors import SourceError, printable  # noqa: PLC0415

    status = 0
    for sampler in _samplers(options):
        try:
            readings = sampler.look()
        except SourceError as error:
            print(error, file=sys.stderr)
            status = 1
            continue
        width = max((len(reading.metric) for reading in readings), default=0)
        print(f"{sampler.url}: {len(readings)} samples")
        for reading in readings:
            print(printable(f"  {reading.metric:<{width}}  {reading.value:>20.15g}  {reading.labels}"))
        if sampler.unknown:
            series = sum(sampler.unknown.values())
            print(f"  and {series} series of {len(sampler.unknown)} metrics that are not kept")
        for problem in sampler.problems:
            print(printable(problem), file=sys.stderr)
            status = 1
    return status


def _record(options: argparse.Namespace) -> int:
    from collectors.devices.agent import record  # noqa: PLC0415
    from collectors.devices.nvml import NvmlSampler  # noqa: PLC0415
    from collectors.source_errors import SourceError  # noqa: PLC0415

    if not options.out.parent.is_dir():
        _refuse(f"--out {options.out}: there is no folder {options.out.parent}")
    try:
        rows = record(NvmlSampler(host=options.host), options.out, options.minutes * 60, options.nvml_interval)
    except SourceError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{rows} rows in {options.out}")
    return 0


def _refuse(reason: str) -> NoReturn:
    print(f"wattledger-agent: {reason}", file=sys.stderr)
    raise SystemExit(2)


if __name__ == "__main__":
    sys.exit(main())
