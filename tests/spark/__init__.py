"""Tests on a real Spark cluster: a standalone master and two workers on this machine, from the pip package.

`make test-spark` runs them (it installs the group `spark` and needs Java); `make test` leaves them out. With
`make test-spark-whole` the demo's four weeks are built too, and every unit test of dbt runs instead of one of each
model. Add here what only Spark can show: parity with DuckDB, a worker's death, a cluster that is not there. Keep
out the book's own rules.
"""

import os

IS_WHOLE = os.environ.get("WATTLEDGER_SPARK_WHOLE") == "1"
