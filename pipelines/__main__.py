"""`python -m pipelines`."""

import gc
import sys

from pipelines.command_line.main import main

# Dagster and dbt make millions of objects that live as long as the process; Python would look through them again and
# again, a tenth of a run's processor time.
gc.set_threshold(50_000, 20, 100)

if __name__ == "__main__":
    sys.exit(main())
