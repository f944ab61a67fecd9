"""What the server of `tests.commands` imports before it forks: packages, the parsed dbt project, compiled templates."""

import dbt.cli.main  # noqa: F401
import great_expectations  # noqa: F401

import pipelines.command_line.main
import pipelines.command_line.run  # noqa: F401
from tests import commands, templates  # noqa: F401

templates.compile_all()
