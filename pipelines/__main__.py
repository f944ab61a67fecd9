"""`python -m pipelines`, and `wattledger`, which is the same command where it is installed."""

import sys

from pipelines.command_line import ending  # first: it is called last
from pipelines.command_line.main import main


def command() -> int:
    """Run the command of this process; returns its exit status."""
    return ending.noted(main())


if __name__ == "__main__":
    sys.exit(command())
