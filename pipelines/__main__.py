"""`python -m pipelines`, and `wattledger`, which is the same command where it is installed."""

import sys

from pipelines import process_exit  # first: it is called last
from pipelines.command_line.main import main


def command() -> int:
    """Run the command of this process; returns its exit status."""
    return process_exit.noted(main())


if __name__ == "__main__":
    sys.exit(command())
