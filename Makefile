# `make demo` and `make test` do all the set-up that is missing. Everything lands in .venv/ and build/.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
BUILD := build/editable
STAMPS := build/stamps
JOBS ?= 2
WORKERS ?= 2
OUT ?= out

NATIVE := CMakeLists.txt $(shell find csrc tests/native -type f 2>/dev/null)
CPU_PLUGIN = $(shell $(PY) -c "import importlib.util as u, pathlib as p; print(p.Path(u.find_spec('lammps_jax_pjrt_cpu').origin).parent / 'pjrt_c_api_cpu_plugin.so')")
PYTEST := $(PY) -m pytest -q -n $(WORKERS) --dist loadgroup

export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
ifneq ($(shell command -v ccache),)
export CMAKE_C_COMPILER_LAUNCHER := ccache
export CMAKE_CXX_COMPILER_LAUNCHER := ccache
endif

.PHONY: help setup demo test test-native test-python sanitize sanitize-threads lint docs bench reference fuzz conformance wheel clean

help:
	@echo "make demo         set up, build, run examples/quickstart.py"
	@echo "make test         set up, build, run all tests"
	@echo "make bench        what operators, copies and a training step cost, beside others"
	@echo "make reference    an environment with the published wheel, for make bench"
	@echo "make fuzz         20,000 random programs against the CPU"
	@echo "make conformance  PyTorch's operator, module and optimizer databases, every dtype"
	@echo "make sanitize     the C tests under AddressSanitizer and UBSan"
	@echo "make sanitize-threads  the launch queue's test under ThreadSanitizer"
	@echo "make lint         ruff, mypy, clang-format, cppcheck"
	@echo "make docs         write docs/operators.md and docs/environment.md"
	@echo "make wheel        a wheel in dist/"

# ---- set-up ----

$(STAMPS)/tools:
	@mkdir -p $(STAMPS)
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet torch==2.13.0 numpy scikit-build-core cmake ninja xla-cpu-pjrt==0.0.1
	@touch $@

$(STAMPS)/installed: $(STAMPS)/tools pyproject.toml $(NATIVE)
	$(PY) -m pip install --quiet --no-build-isolation -Cbuild-dir=$(BUILD) -Ccmake.define.TORCH_TPU_TESTS=ON -e '.[cpu,dev]'
	@touch $@

setup: $(STAMPS)/installed

# ---- what it is for ----

demo: setup
	$(PY) examples/quickstart.py --out $(OUT)

bench: setup
	$(PY) bench/compare.py

# The published wheel, which `make bench` then measures as well: in an environment of its own, as its package has our name.
reference:
	test -x build/reference/bin/python || $(PYTHON) -m venv build/reference
	build/reference/bin/python -m pip install --quiet torch==2.13.0 torch-tpu==0.2.0 numpy

# ---- tests ----

test: test-native sanitize test-python

test-native: setup
	TORCH_TPU_TEST_PLUGIN=$(CPU_PLUGIN) $(BIN)/ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

SANITIZED = $(BIN)/cmake -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DPython_EXECUTABLE=$(abspath $(PY)) \
    -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS=-O1 -DTORCH_TPU_BRIDGE=OFF -DTORCH_TPU_TESTS=ON

sanitize: setup
	$(SANITIZED) -B build/sanitize -DTORCH_TPU_SANITIZE=address,undefined >build/sanitize.log
	$(BIN)/cmake --build build/sanitize -j $(JOBS) >>build/sanitize.log || (tail -40 build/sanitize.log; false)
	UBSAN_OPTIONS=print_stacktrace=1 $(BIN)/ctest --test-dir build/sanitize --output-on-failure -j $(JOBS)

sanitize-threads: setup
	$(SANITIZED) -B build/sanitize-threads -DTORCH_TPU_SANITIZE=thread >build/sanitize-threads.log
	$(BIN)/cmake --build build/sanitize-threads -j $(JOBS) --target queue_test fake_plugin
	$(BIN)/ctest --test-dir build/sanitize-threads --output-on-failure --repeat until-fail:10 -R queue_test

test-python: setup
	$(PYTEST) tests

fuzz: setup
	FUZZ_EXAMPLES=20000 $(PY) -m pytest -q tests/test_fuzz.py --timeout 0
	$(PY) tests/opinfo/fuzz.py --examples 20000

conformance: setup
	$(PY) tests/opinfo/conformance.py --jobs $(JOBS)
	$(PY) tests/opinfo/tpu_programs.py --topology v5e:1x1
	$(PY) tests/opinfo/tpu_programs.py --topology tpu7x:1x1x1
	$(PY) tests/opinfo/conformance.py --record tests/opinfo/results.json --summary
	$(PY) tools/generate_docs.py

# ---- upkeep ----

lint: setup
	$(BIN)/ruff check .
	$(BIN)/mypy
	find csrc tests/native -name '*.[ch]' -o -name '*.cpp' | xargs $(BIN)/clang-format --dry-run -Werror
	@command -v cppcheck >/dev/null || echo "cppcheck is not installed: skipped"
	@! command -v cppcheck >/dev/null || cppcheck --quiet --std=c17 --language=c --error-exitcode=1 --enable=warning,portability --inline-suppr \
	    --suppress=missingIncludeSystem -Icsrc -j $(JOBS) $(filter-out %/tests,$(wildcard csrc/base csrc/pjrt csrc/hlo csrc/view csrc/ops csrc/graph csrc/exec csrc/run))

docs: setup
	$(PY) tools/generate_docs.py

wheel: $(STAMPS)/tools
	$(PY) -m pip wheel --quiet --no-deps --no-build-isolation -w dist .

clean:
	rm -rf build dist out
