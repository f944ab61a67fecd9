# Two commands for a newcomer: `make run` and `make test`; both set up .venv first, once. `make help` lists the rest.

FLEET ?= fleets/demo.yaml
GPUS ?= 1000
MEASURE_PYTHON ?= python3
WHEELS_PYTHON ?= 3.12
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
SPARK_READY := $(VENV)/ready-spark
DOCS_READY := $(VENV)/ready-docs
FOCUS := $(VENV)/focus
FOCUS_READY := $(FOCUS)/ready
SUPERSET := $(VENV)/superset
SUPERSET_READY := $(SUPERSET)/ready
METRICS_READY := $(VENV)/ready-metrics
KUBERNETES := $(VENV)/kubernetes
KUBERNETES_READY := $(KUBERNETES)/ready
GRAFANA := $(VENV)/grafana
GRAFANA_READY := $(GRAFANA)/ready
SQL_READ := $(VENV)/sql-read
MODELS := $(shell find dbt_project/models dbt_project/tests -name '*.sql')
MACROS := dbt_project/dbt_project.yml $(shell find dbt_project/macros -name '*.sql')

ifneq ($(wildcard ../shared/data),)
export WATTLEDGER_VALIDATION_DATA ?= $(abspath ../shared/data)
endif
export GX_ANALYTICS_ENABLED := false
# Where it is set, as in containers, each process compiles this project anew, and pytest each file of tests.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run dev test test-rest test-long test-whole drawn test-spark test-spark-whole test-bi lint types docs release focus kubernetes metrics superset report-shots report-picture bi-shots bench bench-advice bench-coverage bench-empty-day bench-nights bench-receipts bench-spark measure measure-wheels lock clean mission mutants

help:  ## what there is to make
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST)

setup: $(READY)  ## set up .venv from requirements.lock

run: $(READY)  ## book FLEET (fleets/demo.yaml) and print its table; ARGS="--start 2026-10-01 --end 2026-10-08 --force"
	@$(BIN)/wattledger run --fleet $(FLEET) $(ARGS)

dev: $(READY)  ## open the Dagster UI on FLEET, one file or several: FLEET="fleets/demo.yaml fleets/mlperf.yaml"
	@exec $(BIN)/wattledger dev --fleet $(FLEET) $(ARGS)

test: lint  ## lint, then the tests, without those of test-rest; of all of them ARGS="-k landing", or the quick ones: ARGS='-m "not slow"'
	@$(BIN)/python -m pytest $(or $(ARGS),-m 'not rest')

test-rest: $(READY)  ## the tests that `make test` leaves out: more cases, which book for long
	@$(BIN)/python -m pytest -m 'rest and not long' $(ARGS)

test-long: $(READY)  ## whole nights, months, upgrades and kills, each for half a minute and more; one file of six, the second: ARGS="--part 2/6"
	@$(BIN)/python -m pytest -m long $(ARGS)

test-whole: lint  ## lint, then every test but those of test-spark and test-bi
	@$(BIN)/python -m pytest $(ARGS)

mission: $(READY)  ## what the product promises, a question a row, with the answer worked out by hand beside the given one (tests/mission/mission.yaml)
	@$(BIN)/python -m tests.mission

mutants: $(READY)  ## whether the tests see small falsifications of the product, each tried on its own (hours); ARGS="'carbon-*' --suite test", ARGS='--table before after'
	@$(BIN)/python -m tests.mutants $(ARGS)

drawn: $(READY)  ## odd files, odd labels and worlds of a fresh seed, booked: SEED=1 repeats one; ARGS='--cells 0 --files 0 --worlds 200 --reduce', ARGS='--operators --worlds 100'
	@$(BIN)/python -m tests.drawn $(if $(SEED),--seed $(SEED)) $(ARGS)

test-spark: has-java $(SPARK_READY)  ## the same ledger on a real Spark cluster on this machine (needs Java 17); ARGS="-k mlperf"
	@$(BIN)/python -m pytest -o addopts=-ra -s tests/spark $(ARGS)

test-bi: has-chromium+libreoffice+npm+postgresql $(SUPERSET_READY) $(GRAFANA_READY)  ## the dashboards of bi/ in a real Superset and on a real PostgreSQL, and the figures of every face (needs Chromium, LibreOffice, npm and PostgreSQL); ARGS="-k grafana"
	@$(BIN)/python -m pytest -o addopts=-ra tests/bi $(ARGS)

test-spark-whole: export WATTLEDGER_SPARK_WHOLE := 1
test-spark-whole: test-spark  ## test-spark with the demo's 28 days and all of dbt's unit tests (twice as long)

# Types and SQL side by side: each takes one core. Of SQL only models that changed are read again, all after a macro.
lint: $(READY)  ## ruff (rules, format), then mypy beside sqlfluff, which reads what changed since it last passed
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(MAKE) --no-print-directory --jobs 2 types $(SQL_READ)

types: $(READY)
	@$(BIN)/mypy

# sqlfluff has dbt compile the models, on a warehouse in memory. What it finds it prints; its stderr is shown where it
# fails, without what DuckDB's binding says of a connection that was open at the end.
$(SQL_READ): $(READY) .sqlfluff $(MACROS) $(MODELS)
	@WATTLEDGER_WAREHOUSE=:memory: $(BIN)/sqlfluff lint $(if $(filter-out $(MODELS),$?),dbt_project/models dbt_project/tests,$?) \
		2> $(VENV)/sqlfluff.log || { grep -vE 'leaked|skipped remainder|nanobind' $(VENV)/sqlfluff.log >&2; exit 1; }
	@touch $@

release: $(READY)  ## what a release uploads, in DIST (dist): source distributions, wheels, SHA256SUMS; IMAGE=name of a base: the container's image, too (buildah)
	@PYTHON=$(BIN)/python deploy/release $(or $(DIST),dist) $(IMAGE)

docs: $(DOCS_READY)  ## the documentation as a site in site/, every link checked; open site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict && echo "open site/index.html; search needs a server: python3 -m http.server --directory site"

focus: $(FOCUS_READY)  ## the validator of FOCUS files in .venv/focus, for its tests (needs Python 3.12: FOCUS_PYTHON=/path/to/python3.12)

kubernetes: $(KUBERNETES_READY)  ## the schemas of Kubernetes in .venv/kubernetes, for the test of deploy/kubernetes

superset: $(SUPERSET_READY)  ## Apache Superset in .venv/superset (Python 3.11 or 3.12: SUPERSET_PYTHON=/path/to/python3.12); then bi/README.md

metrics: $(METRICS_READY)  ## MetricFlow in .venv: ratios at any grain by name (docs/metrics.md)

report-shots: has-chromium  ## the newest fleet report of FLEET on a desktop, a phone, in the dark and on paper, in data/report-shots (needs Chromium)
	@$(BIN)/python -m tests.report.screenshots $(FLEET) data/report-shots

bi-shots: has-chromium $(SUPERSET_READY)  ## the three Superset dashboards on the newest snapshot of FLEET, in SHOTS, data/bi-shots (needs Chromium)
	@$(BIN)/python -m tests.bi.dashboards $(FLEET) $(or $(SHOTS),data/bi-shots)

report-picture: has-chromium  ## the picture of the report in README, from the demo as it was published last (needs Chromium)
	@$(BIN)/python -m tests.report.screenshots fleets/demo.yaml docs/pictures/fleet_report.png

bench: $(READY)  ## speed and memory beside the floor, printed; GPUS=10000 ARGS="--legs floor --pairs 1"
	@$(BIN)/python -m bench --gpus $(GPUS) $(ARGS)

bench-coverage: $(READY)  ## how often the published intervals hold, on series of known truth, printed (some 15 minutes); ARGS="--seed 2 --series 100 --days 28"
	@$(BIN)/python -m bench.coverage $(ARGS)

bench-advice: $(READY)  ## advice against what came of it, on served fleets of known capacity and on the demo, printed (some 20 minutes); ARGS="--seeds 3 --no-demo"
	@$(BIN)/python -m bench.advice $(ARGS)

bench-empty-day: $(READY)  ## what a day of a small fleet costs and where its seconds go, printed (some 5 minutes, on Linux); ARGS="--days 5 --fleet mine.yaml"
	@$(BIN)/python -m bench.empty_day $(ARGS)

bench-nights: $(READY)  ## what a night costs as a fleet grows old: seconds and bytes by layer, printed (needs VictoriaMetrics; some 20 minutes); ARGS="--nights 365", or what faults leave behind: ARGS="--faults 1"
	@$(BIN)/python -m bench.nights $(ARGS)

bench-receipts: $(READY)  ## whether receipts hold, on simulated engines of known law, and what 10 million cost, printed (some 15 minutes); ARGS="--seed 2 --laws 50"
	@$(BIN)/python -m bench.receipt_truth $(ARGS)
	@$(BIN)/python -m bench.receipt_speed

measure:  ## what a model of 8 billion random weights takes on this host's NVIDIA accelerator (9 minutes; needs PyTorch: MEASURE_PYTHON=/path/to/python); OUT=FOLDER ARGS=--smoke
	@$(MEASURE_PYTHON) -m bench.measured $(if $(OUT),--out $(OUT)) $(ARGS)

measure-wheels: $(READY)  ## the agent's packages in data/wheels, for `make measure` on a host without a network: x86-64, WHEELS_PYTHON=3.12
	@rm -rf data/wheels && mkdir -p data/wheels
	@$(BIN)/python -c "from bench.measured.__main__ import agent_packages; print(*agent_packages(), sep='\n')" > data/wheels/packages.txt
	@$(BIN)/python -m pip download --quiet --disable-pip-version-check --only-binary :all: --python-version $(WHEELS_PYTHON) \
		--platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64 --dest data/wheels --requirement data/wheels/packages.txt

bench-spark: has-java $(SPARK_READY)  ## the same models on Spark and on DuckDB as samples grow, printed (needs Java 17)
	@$(BIN)/python -m bench --legs growth $(ARGS)

lock: $(READY)  ## write the locks anew from pyproject.toml, for Python 3.11 to 3.13 (asks the network)
	@$(BIN)/python -m venv $(VENV)/lock && $(VENV)/lock/bin/pip install --quiet uv
	@$(VENV)/lock/bin/uv pip compile --quiet --no-strip-extras --universal --python-version 3.11 --generate-hashes --no-header \
		--group dev --output-file $(VENV)/requirements.fresh pyproject.toml
	@(head -n 1 requirements.lock; cat $(VENV)/requirements.fresh) > $(VENV)/requirements.headed
	@mv $(VENV)/requirements.headed requirements.lock
	@$(VENV)/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-strip-extras --group spark --constraints requirements.lock \
		--output-file $(VENV)/requirements.fresh pyproject.toml
	@(head -n 1 requirements-spark.lock; cat $(VENV)/requirements.fresh) > $(VENV)/requirements.headed
	@mv $(VENV)/requirements.headed requirements-spark.lock
	@$(VENV)/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-strip-extras --group docs --constraints requirements.lock --output-file $(VENV)/requirements.fresh
	@(head -n 1 requirements-docs.lock; cat $(VENV)/requirements.fresh) > $(VENV)/requirements.headed
	@mv $(VENV)/requirements.headed requirements-docs.lock
	@$(VENV)/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-strip-extras --group metrics --constraints requirements.lock --output-file $(VENV)/requirements.fresh
	@(head -n 1 requirements-metrics.lock; cat $(VENV)/requirements.fresh) > $(VENV)/requirements.headed
	@mv $(VENV)/requirements.headed requirements-metrics.lock
	@$(VENV)/lock/bin/uv pip compile --quiet --universal --python-version 3.12 --generate-hashes --no-header \
		--no-strip-extras --group focus --output-file $(VENV)/requirements.fresh
	@(head -n 1 requirements-focus.lock; cat $(VENV)/requirements.fresh) > $(VENV)/requirements.headed
	@mv $(VENV)/requirements.headed requirements-focus.lock
	@$(VENV)/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-strip-extras --group superset --output-file $(VENV)/requirements.fresh
	@(head -n 1 requirements-superset.lock; cat $(VENV)/requirements.fresh) > $(VENV)/requirements.headed
	@mv $(VENV)/requirements.headed requirements-superset.lock
	@$(VENV)/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-strip-extras --group kubernetes --output-file $(VENV)/requirements.fresh
	@(head -n 1 requirements-kubernetes.lock; cat $(VENV)/requirements.fresh) > $(VENV)/requirements.headed
	@mv $(VENV)/requirements.headed requirements-kubernetes.lock && rm $(VENV)/requirements.fresh

clean:  ## remove what was made here: .venv, caches, dbt's targets, the site; data/ stays
	@rm -rf $(VENV) dbt_project/target dbt_project/logs bi/metricflow/target bi/metricflow/logs site .pytest_cache .ruff_cache .mypy_cache .hypothesis *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Before anything is installed for a target: the programs that it needs and that make cannot install.
has-%: $(READY)
	@$(BIN)/python -m tests.optional $(subst +, ,$*)

# Nothing here asks the network once it is done; a changed lock or pyproject.toml does it again.
$(READY): requirements.lock pyproject.toml
	@set -e; found=; \
	for python in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
		if $$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then \
			found=$$python; break; \
		fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "Wattledger needs Python 3.11, 3.12 or 3.13 on the PATH: install one, or name it: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; \
	fi; \
	if ! $$found -c 'import ensurepip, venv' 2>/dev/null; then \
		echo "$$found cannot make environments: on Debian and Ubuntu, apt-get install python3-venv." >&2; exit 1; \
	fi; \
	echo "setting up $(VENV) with $$($$found --version)"; \
	$$found -m venv $(VENV); \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)

$(SPARK_READY): $(READY) requirements-spark.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-spark.lock
	@touch $(SPARK_READY)

$(DOCS_READY): $(READY) requirements-docs.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@touch $(DOCS_READY)

$(METRICS_READY): $(READY) requirements-metrics.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-metrics.lock
	@touch $(METRICS_READY)

# 3.12 alone: on 3.11 one of its lines is no Python, and for 3.13 its numpy has no wheel.
$(FOCUS_READY): requirements-focus.lock
	@set -e; found=; \
	for python in $(FOCUS_PYTHON) $(PYTHON) python3.12 python3 $${PYENV_ROOT:-$$HOME/.pyenv}/versions/3.12*/bin/python3.12; do \
		if $$python -c 'import sys, ensurepip, venv; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; then \
			found=$$python; break; \
		fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "focus-validator needs Python 3.12 on the PATH or in pyenv: install it, or name it: make FOCUS_PYTHON=/path/to/python3.12 focus" >&2; exit 1; \
	fi; \
	rm -rf $(FOCUS); $$found -m venv $(FOCUS); \
	$(FOCUS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-focus.lock
	@touch $(FOCUS_READY)

$(KUBERNETES_READY): $(READY) requirements-kubernetes.lock
	@$(BIN)/python -m venv $(KUBERNETES)
	@$(KUBERNETES)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-kubernetes.lock
	@touch $@

# 3.11 or 3.12: for 3.13 its numpy has no wheel.
$(SUPERSET_READY): requirements-superset.lock
	@set -e; found=; \
	for python in $(SUPERSET_PYTHON) $(PYTHON) python3.11 python3.12 python3 $${PYENV_ROOT:-$$HOME/.pyenv}/versions/3.1[12]*/bin/python3; do \
		if $$python -c 'import sys, ensurepip, venv; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; then \
			found=$$python; break; \
		fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "Superset 6.1 needs Python 3.11 or 3.12 on the PATH or in pyenv: install one, or name it: make SUPERSET_PYTHON=/path/to/python3.12 superset" >&2; exit 1; \
	fi; \
	rm -rf $(SUPERSET); $$found -m venv $(SUPERSET); \
	$(SUPERSET)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-superset.lock
	@touch $(SUPERSET_READY)

# Grafana's published types of a dashboard, and the compiler that checks its files against them.
$(GRAFANA_READY): tests/bi/grafana_schema/package.json tests/bi/grafana_schema/package-lock.json
	@mkdir -p $(GRAFANA) && cp $^ $(GRAFANA)
	@npm ci --prefix $(GRAFANA) --ignore-scripts --no-audit --no-fund --silent
	@touch $(GRAFANA_READY)
