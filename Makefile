# `make demo` and `make test` do all set-up.  Stamp files make a second call cheap: packages are
# installed again only when pyproject.toml or constraints.txt change.

PYTHON ?= python3
# Tests wait for processes that they start: four at a time keep two cores busy.
JOBS ?= 4
VENV := .venv
IN_VENV := $(VENV)/bin/python -m
# Python compiles modules as they are imported, once for all processes; to compile all of the libraries takes longer.
INSTALL := $(IN_VENV) pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test fuzz chaos mutants lint docs clean
# Two installations into one environment must not meet.
.NOTPARALLEL:

demo: $(VENV)/demo.stamp
	$(IN_VENV) orrery compare vgg16 --cluster fdr-32x3 --batch 768 --out out/demo/fdr-32x3
	$(IN_VENV) orrery compare alexnet --cluster p100-4x4 --batch 512 --out out/demo/p100-4x4
	@echo "Open these pages in a browser:"
	@echo "  $(CURDIR)/out/demo/fdr-32x3/index.html"
	@echo "  $(CURDIR)/out/demo/p100-4x4/index.html"

test: $(VENV)/all.stamp
	$(IN_VENV) pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

# CASES spoiled inputs, the first of them SEED: half an hour on two cores.
CASES ?= 20000
SEED ?= 0
fuzz: $(VENV)/all.stamp
	$(VENV)/bin/python tests/fuzz/campaign.py $(CASES) $(SEED)

# SECONDS of faults while commands work, and as many while the workbench serves; as root also full disks and read-only folders.
SECONDS ?= 600
chaos: $(VENV)/all.stamp
	$(VENV)/bin/python tests/chaos/campaign.py $(SECONDS) $(SEED)
	$(VENV)/bin/python tests/chaos/serve_faults.py $(SECONDS) $(SEED)

# COUNT random changes of the code, each tried against the tests that execute it.  What they execute is noted first, once.
COUNT ?= 300
mutants: $(VENV)/all.stamp
	$(VENV)/bin/python tests/mutants/campaign.py $(COUNT) $(SEED)

lint: $(VENV)/lint.stamp
	$(IN_VENV) ruff check
	$(IN_VENV) ruff format --check
	$(IN_VENV) mypy

docs: $(VENV)/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(IN_VENV) mkdocs build --quiet --strict
	@echo "Open $(CURDIR)/out/docs/index.html in a browser; it needs no server"

clean:
	rm -rf $(VENV) out

$(VENV)/venv.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "PYTHON must name Python 3.11 or newer, got $(PYTHON) ($$($(PYTHON) --version 2>&1))" \
	    "- choose another, such as: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/demo.stamp: $(VENV)/venv.stamp pyproject.toml constraints.txt
	$(INSTALL) -e .
	@touch $@

$(VENV)/all.stamp: $(VENV)/venv.stamp pyproject.toml constraints.txt
	$(INSTALL) -e '.[executor,test]'
	@touch $@

$(VENV)/lint.stamp: $(VENV)/all.stamp
	$(INSTALL) -e '.[lint]'
	@touch $@

$(VENV)/docs.stamp: $(VENV)/venv.stamp pyproject.toml constraints.txt
	$(INSTALL) -e '.[docs]'
	@touch $@
