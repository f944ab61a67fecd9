"""The command `serve`: the process of `pipelines.serving`, and how it is ended.

Add here what its options mean. Keep out what the process does.
"""

from __future__ import annotations

import argparse
import ipaddress
import logging
import os
from typing import TYPE_CHECKING

from pipelines.command_line import console, instance
from pipelines.fleet.data_owner import claim
from pipelines.fleet.fleet_file import Fleet
from pipelines.serving.ending import Ending
from pipelines.warehouse.refusals import QuestionError

if TYPE_CHECKING:
    from pipelines.serving.service import Service

logger = logging.getLogger(__name__)


def serve(fleet: Fleet, options: argparse.Namespace) -> int:
    """Serve the fleet until SIGTERM or SIGINT; returns the exit status. QuestionError where an option is wrong."""
    console.show(options.log_format)
    try:
        with Ending() as ending:
            _service(fleet, options, ending).run()
    except KeyboardInterrupt:
        logger.info("ended")
    return 0


def _service(fleet: Fleet, options: argparse.Namespace, ending: Ending) -> Service:
    """The service, which listens already."""
    token = _token(options.bearer_env)
    if token is None and not _is_own_machine(options.host):
        logger.warning(
            "--host %s: other machines can read the figures without a token; --bearer-env NAME asks for one",
            options.host,
        )
    from pipelines.code_location import validate  # noqa: PLC0415 (Dagster takes a second)
    from pipelines.serving.service import Place, Service  # noqa: PLC0415

    validate(fleet)
    claim(fleet)
    home, is_ours = instance.chosen([fleet])
    instance.create(home, is_ours=is_ours)
    names = tuple(options.allowed_host)
    place = Place(options.host, options.port, names, token, options.textfile, home, options.log_format)
    try:
        return Service(fleet, place, ending)
    except OSError as refusal:
        raise QuestionError(
            f"--host {place.host} --port {place.port}: {refusal.strerror}. Name a free port of this machine:"
            " --port 9470"
        ) from None


def _token(variable: str | None) -> str | None:
    if variable is None:
        return None
    token = os.environ.get(variable, "").strip()
    if not token:
        raise QuestionError(f"--bearer-env {variable}: the variable is empty or not set, expected a token")
    return token


def _is_own_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
