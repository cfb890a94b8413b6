# Every target sets up what it needs in .venv; the second run finds it there. Names for people: see `make help`.
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
COMPILED := $(VENV)/.compiled
CYTHON_SOURCES := $(wildcard $(addprefix src/instride/,_net/compiled_pump.py _net/compiled_pump.pxd _wire/arrow_array.py _wire/arrow_array.pxd _wire/batch_headers.py _wire/record_index.py _wire/decoder.py))
RESULTS := .test-results.xml
JOBS := $(shell getconf _NPROCESSORS_ONLN)
# Two more than there are cores: tests at a real broker wait most of their time.
TEST_JOBS := $(shell expr $(JOBS) + 2)
FUZZ_SECONDS := 60
ATTACK_SECONDS := 3600
OTHER_SPARK := 4.2.1
CONNECT_NEEDS := grpcio==1.85.1 grpcio-status==1.85.1 googleapis-common-protos==1.76.0 protobuf==7.36.2 pyyaml==6.0.3
SEED := 0
SIMULATE = $(BIN)/python -m instride.testing.simulate --seed $(SEED) --jobs $(JOBS)
SHORT_ON_SPARK = $(BIN)/python -m pytest -x -s tests/spark/short_on_spark.py
WITH_JAVA = JAVA_HOME="$$(tools/prerequisites --java-home)"

# Also where the environment keeps no bytecode: each of a run's thousand processes would compile all that it imports, for a second.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test whole stutter conformance coverage coverage-core coverage-core-network coverage-core-others coverage-loop coverage-network check check-lint check-mypy check-pyright check-pages docs simulate explore interrupts interop kerberos mutants kip983-mutants attack attack-kafka sink-attack spark-groups spark-cluster spark-versions fuzz bench format clean distclean

help:
	@echo "make demo    the main job: two Spark applications share a topic, and nobody stops (seven minutes)"
	@echo "make test    all tests: the fast ones, then those with a real Kafka, then those with a real Spark"
	@echo "make whole   all tests, and of those that are drawn by the commit every case (an hour)"
	@echo "make stutter all tests, while their threads and processes are made late at random (STUTTER_SEED=7): finds flaky ones"
	@echo "make conformance says which requirements the newest make test has shown, and which tests did not run here"
	@echo "make coverage shows that the tests of the core, of Spark's loop and of the network side run every line and branch of them (three minutes)"
	@echo "make check   format, lint, strict types, import contracts, pages that are made are up to date"
	@echo "make simulate plays ten thousand histories of a group, and judges each (SIMULATE_ARGS=\"--seed 5 --histories 9\")"
	@echo "make explore plays every sequence of moves in small groups, for ten minutes (EXPLORE_ARGS=\"--depth 3\")"
	@echo "make interrupts raises an exception at every line of every call, one at a time (three minutes)"
	@echo "make docs    writes the pages that are made from the code and the tests"
	@echo "make interop groups of ours and each other client: every assignor, each leading; join, leave, kill (15 minutes)"
	@echo "make kerberos installs what the tests of GSSAPI need, on Debian and as root; else they are skipped"
	@echo "make mutants puts known bugs into copies of the code: a test or the simulation must find each"
	@echo "make kip983-mutants breaks each row of KIP-983: the test that the row names must fail (two minutes)"
	@echo "make attack  lying brokers, fellow members and producers, a damaging network, no memory, threads or files (5 minutes)"
	@echo "make attack-kafka damages what a real Kafka sends (ATTACK_SECONDS=3600, an hour)"
	@echo "make sink-attack kills and stops driver, executor, worker and broker, 50 times for each sink (hours; SINK_FAULTS=50)"
	@echo "make spark-groups lets two applications of one group join and leave 20 times, with a played and a real Spark (10 minutes)"
	@echo "make spark-cluster kills an executor and a worker of a standalone cluster in mid-job (8 minutes)"
	@echo "make spark-versions runs what there is for Spark with PySpark $(OTHER_SPARK) too, and over Spark Connect (10 minutes)"
	@echo "make fuzz    mutated bytes for every decoder, by hand, by coverage and with sanitizers (FUZZ_SECONDS=60 each)"
	@echo "make bench   the benchmarks (BENCH_ARGS=--quick: in two minutes; BENCH_ARGS=\"groups --hold 20\": only that one)"
	@echo "make format  let ruff format the code"
	@echo "make clean   remove what was built and written (distclean: the virtual environment too)"

demo: $(COMPILED)
	@$(WITH_JAVA) $(BIN)/python -m demo $(DEMO_ARGS)

# Each run has another seed of hashes, and all processes of a run the same: they must agree on the names of the tests.
test: $(COMPILED)
	@$(WITH_JAVA) PYTHONHASHSEED="$${PYTHONHASHSEED:-$$(date +%s)}" $(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal --junitxml=$(RESULTS) $(PYTEST_ARGS)

# Without it a run plays of the tests that are marked `drawn` the part that the commit says (tests/drawn_by_commit.py).
whole: export INSTRIDE_WHOLE := 1
whole: test

stutter: override PYTEST_ARGS += -p stutter
stutter: test

# Of the newest `make test`: a row of docs/conformance.md counts only if a test of it passed in that run.
conformance: $(COMPILED)
	@PYTHONPATH=tools $(BIN)/python -m conformance --results $(RESULTS)

# Spark's loop, and the member of a query in group mode: what decides, which needs no broker and no Spark to be tested.
LOOP := */spark/_pipeline_loop.py,*/spark/_planning.py,*/spark/_targets.py,*/spark/_membership.py,*/spark/_resets.py,*/spark/_committing.py,*/spark/_running_jobs.py,*/_data_source/group_*.py
LOOP_TESTS := $(addprefix tests/spark/test_,available_now.py pipeline_loop.py pipeline_loop_faults.py planning.py group_member.py group_stream.py group_table.py)

# Beyond the core, by fast tests without a broker: the ledger and a partition's records in it, the network side, a connection's
# bytes and frames, the public classes. One file is left out: coverage does not see what Cython compiles. Of that pump the plain
# form is measured, tests/net/test_pump.py holds both to the same, and test_openssl.py what it reads of TLS to Python's own reads.
# In the place of Kerberos' library the tests have one of their own (tests/security/test_kerberos_authenticator.py).
BEYOND := */instride/ledger.py,*/instride/_partition_ledger.py,*/_net/*.py,*/_wire/connection.py,*/_wire/frames.py,*/instride/_consumer_base.py,*/instride/consumer.py,*/instride/aio.py
COMPILED_ONLY := */_net/compiled_pump.py
BEYOND_TESTS := $(addprefix tests/,test_ledger.py test_ledger_threads.py test_partition_ledger.py test_arguments.py test_observers.py test_interceptors.py net aio security wire/test_wire_connection.py wire/test_wire_frames.py wire/test_memory_pool.py wire/test_sasl_connection.py)

# They run the same lines over and over (each pair of verbs, a signal at each line, counts of steps): no line is run by them alone.
REPEATING := $(addprefix --ignore tests/,core/application/test_signal_handlers.py core/application/test_application_cost.py core/network/test_network_cost.py core/network/test_no_spinning.py core/network/test_verbs_in_any_order.py net/test_interrupted_calls.py)

# Beside each other, as many as there are cores: each has a file of data of its own.
coverage: $(COMPILED)
	@$(MAKE) --no-print-directory --jobs $(JOBS) --output-sync=target coverage-network coverage-core coverage-loop

coverage-core coverage-core-network coverage-core-others coverage-loop coverage-network: export COVERAGE_FILE = .coverage.$@

# In two runs, so that two cores share the work.
coverage-core: coverage-core-network coverage-core-others
	@$(BIN)/python -m coverage combine --quiet .coverage.coverage-core-network .coverage.coverage-core-others
	@$(BIN)/python -m coverage report

coverage-core-network: $(COMPILED)
	@$(BIN)/python -m coverage run -m pytest --quiet -m "not hypothesis and not part" $(REPEATING) tests/core/network

coverage-core-others: $(COMPILED)
	@$(BIN)/python -m coverage run -m pytest --quiet -m "not hypothesis and not part" $(REPEATING) --ignore tests/core/network tests/core

coverage-loop: $(COMPILED)
	@$(BIN)/python -m coverage run --source=src/instride/spark -m pytest --quiet -m "not hypothesis and not part" $(LOOP_TESTS)
	@$(BIN)/python -m coverage report --include='$(LOOP)'

coverage-network: $(COMPILED)
	@$(BIN)/python -m coverage run --source=src/instride -m pytest --quiet -m "not hypothesis and not kafka" $(REPEATING) $(BEYOND_TESTS)
	@$(BIN)/python -m coverage report --include='$(BEYOND)' --omit='$(COMPILED_ONLY)'

# Beside each other: the type checkers take most of the time.
check: $(COMPILED)
	@$(MAKE) --no-print-directory --jobs $(JOBS) --output-sync=target check-mypy check-pyright check-pages check-lint

check-lint: $(COMPILED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

check-mypy: $(COMPILED)
	$(BIN)/mypy

check-pyright: $(COMPILED)
	@if test -x $(BIN)/basedpyright; then $(BIN)/basedpyright --pythonpath $(BIN)/python; \
		else echo "pyright does not check the examples: .venv is older than pyproject.toml (rm $(INSTALLED))"; fi

check-pages: $(COMPILED)
	$(BIN)/python tools/draw_tables.py --check
	$(BIN)/python tools/draw_stories.py --check
	PYTHONPATH=tools $(BIN)/python -m conformance --check
	PYTHONPATH=tools $(BIN)/python -m api_reference --check

# The mixtures of means begin at the history that SEED names: CI takes it of the commit, so each commit plays others.
simulate: $(COMPILED)
	@$(BIN)/python -m instride.testing.simulate --histories 10000 --jobs $(JOBS) $(SIMULATE_ARGS)
	@$(SIMULATE) --harsh leaves,errors --histories 200
	@$(SIMULATE) --groups executors,latest --histories 200
	@$(SIMULATE) --groups latest,retention --histories 100
	@$(SIMULATE) --groups latest,truncations --histories 100
	@$(SIMULATE) --groups latest,retention,truncations --histories 60
	@$(SIMULATE) --groups recreations --histories 100
	@$(SIMULATE) --groups executors,recreations --histories 60
	@$(SIMULATE) --unruly verbs,listeners,ends,interrupts --harsh leaves,commits,errors --histories 100
	@$(SIMULATE) --unruly verbs,listeners,ends,interrupts,lines,modes,looks --histories 60
	@$(SIMULATE) --unruly verbs,signals,looks,modes --histories 60
	@$(SIMULATE) --unruly verbs,listeners,ends,pairs,interrupts --histories 100
	@$(SIMULATE) --unruly verbs,modes,lines,looks,signals,rewinds --histories 60
	@$(SIMULATE) --unruly hand --histories 60

explore: $(COMPILED)
	@$(BIN)/python -m instride.testing.explore --jobs $(JOBS) $(EXPLORE_ARGS)

# make test tries one line in 47, and begins where the commit says.
interrupts: $(COMPILED)
	@INSTRIDE_WHOLE=1 $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal tests/net/test_interrupted_calls.py

docs: $(COMPILED)
	$(BIN)/python tools/draw_tables.py
	$(BIN)/python tools/draw_stories.py
	PYTHONPATH=tools $(BIN)/python -m conformance
	PYTHONPATH=tools $(BIN)/python -m api_reference

kerberos: $(INSTALLED)
	@tools/kerberos $(BIN)/python -m pip

interop: $(COMPILED)
	@$(WITH_JAVA) PYTHONPATH=tests/kafka:tests $(BIN)/python -m interop_matrix $(INTEROP_ARGS)
	@$(if $(INTEROP_ARGS),,$(WITH_JAVA) INSTRIDE_WHOLE=1 $(BIN)/python -m pytest -q tests/kafka/test_kafka_bounces.py)

mutants: $(COMPILED)
	@PYTHONPATH=tools $(BIN)/python -m mutants $(MUTANTS_ARGS)

# Of each row of KIP-983 the bug that it names, tried by the one test that it names.
kip983-mutants: $(COMPILED)
	@PYTHONPATH=tools $(BIN)/python -m mutants --rows --jobs $(JOBS)

attack: $(COMPILED)
	@PYTHONPATH=tools $(BIN)/python -m attack $(ATTACK_ARGS)

attack-kafka: $(COMPILED)
	@$(WITH_JAVA) PYTHONPATH=tools $(BIN)/python -m attack.kafka --seconds $(ATTACK_SECONDS) $(ATTACK_ARGS)

sink-attack: $(COMPILED)
	@INSTRIDE_WHOLE=1 $(BIN)/python -m pytest -x tests/spark/test_table_crash.py
	@$(WITH_JAVA) $(BIN)/python -m pytest -x -s tests/spark/attack_sinks.py

spark-groups: $(COMPILED)
	@$(WITH_JAVA) INSTRIDE_WHOLE=1 GROUP_TURNS=20 $(BIN)/python -m pytest -x tests/spark/test_group_kafka.py
	@$(WITH_JAVA) GROUP_TURNS=20 $(BIN)/python -m pytest -x -s tests/spark/groups_on_spark.py

spark-cluster: $(COMPILED)
	@$(WITH_JAVA) $(BIN)/python -m pytest -x -s tests/spark/cluster_on_spark.py

# Beside .venv, in folders for PYTHONPATH: what Spark Connect needs, and another PySpark.
.spark-connect/.installed .spark-$(OTHER_SPARK)/.installed: $(INSTALLED)
	@rm -rf $(@D)
	$(BIN)/python -m pip install --quiet --no-deps --target $(@D) $(if $(findstring connect,$@),$(CONNECT_NEEDS),pyspark==$(OTHER_SPARK))
	@touch $@

spark-versions: $(COMPILED) .spark-connect/.installed .spark-$(OTHER_SPARK)/.installed
	@$(WITH_JAVA) PYTHONPATH=$(CURDIR)/.spark-$(OTHER_SPARK) $(SHORT_ON_SPARK)
	@$(WITH_JAVA) PYTHONPATH=$(CURDIR)/.spark-connect SPARK_SESSION=connect $(SHORT_ON_SPARK)
	@$(WITH_JAVA) PYTHONPATH=$(CURDIR)/.spark-$(OTHER_SPARK):$(CURDIR)/.spark-connect SPARK_SESSION=connect $(SHORT_ON_SPARK)

# By coverage only where atheris is installed: its wheels are for some Pythons only.
fuzz: $(COMPILED)
	@PYTHONPATH=tools $(BIN)/python -m fuzz --seconds $(FUZZ_SECONDS)
	@! $(BIN)/python -c "import atheris" 2>/dev/null || PYTHONPATH=tools $(BIN)/python -m fuzz --guided --seconds $(FUZZ_SECONDS)
	@tools/fuzz/sanitized "$(abspath $(BIN))/python" --seconds $(FUZZ_SECONDS)

bench: $(COMPILED)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks $(BENCH_ARGS)

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The build tools come first and at their pinned versions; so the build needs no environment of its own.
$(INSTALLED): pyproject.toml setup.py constraints.txt
	@MAKE="$(MAKE)" tools/prerequisites
	test -x $(BIN)/python || "$$(tools/prerequisites --python)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt setuptools cython
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	@touch $@

$(COMPILED): $(INSTALLED) $(CYTHON_SOURCES)
	$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

clean:
	rm -rf build dist src/*.egg-info demo-output bench-output spark-warehouse metastore_db derby.log
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.* htmlcov $(RESULTS)
	find src tests benchmarks demo -name __pycache__ -type d -prune -exec rm -rf {} +
	find src -name '*.so' -delete
	rm -f $(COMPILED)

distclean: clean
	rm -rf $(VENV) .spark-connect .spark-$(OTHER_SPARK)
