# `make demo` and `make test` do all the set-up they need in .venv; nothing outside this folder is changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Two test processes with one torch thread each use two cores best.
JOBS ?= 2

# Length of the viewer's soak; an hour is `make soak-view SECONDS=3600`.
SECONDS ?= 120

.PHONY: demo view test test-quick test-install setup lint benchmark soak-kills fuzz soak-view audit licences sbom clean

demo: $(STAMP)
	rm -rf demo-output
	$(BIN)/histolumen demo --out demo-output

# Opens the viewer on the demo's run, which is made first if there is none.
view: $(STAMP) demo-output/run/best
	$(BIN)/histolumen view demo-output/run

demo-output/run/best:
	$(MAKE) demo

test: $(STAMP) lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS)

# For the edit loop: what needs neither training nor a process of its own.
test-quick: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) -m "not slow"

# The package in an empty environment: builds it, installs it with its dependencies, makes images. Takes minutes.
test-install: $(STAMP)
	PYTHON=$(PYTHON) bash scripts/test_install.sh $(BIN)/python

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

benchmark: $(STAMP)
	$(BIN)/python benchmarks/run_all.py --write

# Normal clients of the viewer beside slow, cut-off and malformed ones.
soak-view: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/soak_view.py --seconds $(SECONDS)

# Known vulnerabilities of the pinned versions; asks the advisory service of PyPI, or another one: SERVICE=osv.
# Strict: without it, packages that the service does not know count as harmless.
SERVICE ?= pypi
audit: $(STAMP)
	$(BIN)/pip-audit -r constraints.txt --no-deps --disable-pip --strict --vulnerability-service $(SERVICE)

# The licence of every dependency; fails if one does not permit distribution.
licences: $(STAMP)
	$(BIN)/python scripts/licences.py

# The bill of materials as CycloneDX JSON.
sbom: $(STAMP)
	$(BIN)/python scripts/sbom.py sbom.json

# Kills commands at random moments, and lets the disk refuse; about half an hour. `make test` has a short form.
KILLS ?= train=50 train-proposals=5 predict=10 camelyon16=10 slide=8 benchmark=8 study=4
soak-kills: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python tests/survival/soak.py $(KILLS)

# Feeds damaged files to everything that reads files; a few minutes. `make test` has a short form.
FUZZ_INPUTS ?= 10000
fuzz: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzzing/fuzz.py --count $(FUZZ_INPUTS)

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt scripts/install.sh
	PYTHON=$(PYTHON) bash scripts/install.sh $(VENV)
	touch $(STAMP)

clean:
	rm -rf $(VENV) demo-output build dist
