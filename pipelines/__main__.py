"""`python -m pipelines`, which is `wattledger` where that is not installed."""

import sys

from pipelines.command_line.main import main

if __name__ == "__main__":
    sys.exit(main())
