"""`python -m pipelines`."""

import sys

from pipelines.command_line.main import main

if __name__ == "__main__":
    sys.exit(main())
