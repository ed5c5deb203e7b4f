# Every target sets up what it needs: an environment in .venv, with the pinned versions.
PYTHON ?= python3
BIN := .venv/bin
# Two steps of one environment: what the demo needs, and then what the tests need, too.
SMALL := .venv/small
READY := .venv/ready
# uv takes an eighth of pip's time, but knows none of pip's settings: where it fails, pip installs.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt editables
# A file's tests stay on one worker, in order; tests/conftest.py puts the long ones first.
WORKERS := -n auto --dist loadscope --no-loadscope-reorder

export HF_HUB_OFFLINE := 1
# Without bytecode on disk each of the tests' many processes would compile its imports anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test gate night lint bench faults fuzz interop gpu gpu-hour gpu-wheels docs picture clean

help:
	@echo "make demo    real pictures and real words, each from a store to a page"
	@echo "make test    the tests that a person runs: two minutes on two cores"
	@echo "make gate    all that guards a change: tests, lint, wheel, demo"
	@echo "make night   slower tests, the site, many examples, other processors and versions"
	@echo "make lint    style, types, which room may import which, and the packages' weight"
	@echo "make faults  long runs that kill and corrupt things: half an hour"
	@echo "make fuzz    thousands of damaged and forged inputs"
	@echo "make interop other programs read what we write: zarr, xarray, ELAN readers (in make night)"
	@echo "make gpu     the tests that need a CUDA device"
	@echo "make gpu-hour  how fast a GPU extracts; needs make gpu-wheels"
	@echo "make bench   the benchmarks; ONLY=manifests for one of them"
	@echo "make docs    the documentation site, in docs/_build"
	@echo "make picture the pictures that are committed, in docs/pictures and README"
	@echo "make clean   remove the environment and what was built"

$(SMALL): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("obygaze needs Python 3.11 or newer, this is %d.%d; name one with: make PYTHON=python3.11" % sys.version_info[:2])'
	@echo "Setting up .venv; the first time this takes a few minutes (torch is large)"
	@$(PYTHON) -m venv .venv
	@$(PIP) uv
	@$(UV) -e '.[extract,models,report,small]' || $(PIP) -e '.[extract,models,report,small]'
	@touch $(SMALL)

$(READY): $(SMALL)
	@echo "Adding what the tests need to .venv"
	@$(UV) -e '.[dev]' || $(PIP) -e '.[dev]'
	@$(BIN)/python -c 'import matplotlib.pyplot, pandas, scipy.stats, torch, transformers, xarray, zarr' # compiled once, and not by each worker of the tests
	@touch $(READY)

demo: $(SMALL)
	@OBYGAZE=$(BIN)/obygaze examples/demo.sh
	@echo "To type such commands yourself: . .venv/bin/activate"

test: $(READY)
	@$(BIN)/python -m pytest $(WORKERS)

gate: $(READY)
	@WORKERS="$(WORKERS)" .ci/gate

night: $(READY)
	@.ci/night

lint: $(READY)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy
	@$(BIN)/mypy --platform win32 --no-warn-unreachable --cache-dir .mypy_cache/win32 obygaze_features obygaze_models
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python .ci/budget.py

faults: $(READY)
	@OBYGAZE_KEEP_COUNTS=1 $(BIN)/python -m pytest -n auto --dist loadgroup -m faults

fuzz: $(READY)
	@OBYGAZE_KEEP_COUNTS=1 $(BIN)/python -m pytest -n auto --dist loadgroup -m fuzz tests/fuzz

interop: $(READY)
	@.ci/interop

gpu: $(READY)
	@TORCH_CUDA_SANITIZER=1 $(BIN)/python -m pytest -m gpu

# For the machine's Python: make gpu-wheels GPU_PYTHON=3.12
GPU_PYTHON ?= $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
gpu-wheels:
	@rm -rf build/gpu-wheels
	@$(PYTHON) -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --python-version $(GPU_PYTHON) -c constraints.txt -d build/gpu-wheels -r benchmarks/gpu-wheels.txt
	@du -shL build/gpu-wheels

# Not by the environment in .venv: a lent machine has its own torch, and no network.
gpu-hour:
	@for wheel in build/gpu-wheels/*.whl; do [ ! -e "$$wheel" ] || $(PYTHON) -m zipfile -e "$$wheel" build/gpu-packages; done
	@PYTHONPATH=.:build/gpu-packages HF_HUB_OFFLINE=1 $(PYTHON) -m benchmarks.gpu

bench: $(READY)
	@$(BIN)/python -c 'import decord, faiss, importlib.metadata as m, lance, obstore; m.version("torchcodec")' 2>/dev/null || $(UV) -e '.[bench]' || $(PIP) -e '.[bench]'
	@$(BIN)/python -m benchmarks $(ONLY)

docs: $(READY)
	@$(BIN)/python -m docs.pictures --live
	@$(BIN)/python -m sphinx -q -W --keep-going -j auto -d docs/_build/doctrees docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

picture: $(READY)
	@$(BIN)/python -m docs.pictures

clean:
	rm -rf .venv .interop build dist demo docs/_build docs/reference/commands .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
