# A thin layer over Meson: every command that there is, by one name. `make help` lists them.
# IDEM_PORT moves the demo of `make run`.
SHELL := /bin/bash
PYTEST := /usr/bin/python3 -m pytest -q -p no:cacheprovider
SETUP := set -eu; . tools/setup.sh;
SANITIZE := -Db_sanitize=address,undefined -Db_lundef=false

.DEFAULT_GOAL := help
.PHONY: help build build-asan build-cover run unit contract sim servers fuzz system demo-test \
	sanitize model bench lint tidy clang-tidy format cover check clean

help: ## lists the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

build: ## installs what is missing and builds everything into build/
	@$(SETUP) setup_packages "$${setup_packages_build[@]}"; setup_build build

build-asan: ## the same with AddressSanitizer and UBSan, into build-asan/
	@$(SETUP) setup_packages "$${setup_packages_build[@]}"; setup_build build-asan $(SANITIZE)

run: ## the demo: a payment service behind the gateway
	@./run

unit: build ## unit tests (cmocka)
	@meson test -C build --no-rebuild --print-errorlogs --suite unit

contract: build ## the one suite that every store must pass, on real servers
	@$(SETUP) setup_packages "$${setup_packages_test[@]}"
	@meson test -C build --no-rebuild --print-errorlogs --suite contract

sim: build ## the simulator: 100 000 runs, past seeds, every mutant caught
	@meson test -C build --no-rebuild --print-errorlogs --suite sim

model: ## the protocol as a model: spin looks at every state, and every broken one is caught
	@$(SETUP) setup_packages "$${setup_packages_build[@]}" "$${setup_packages_test[@]}"
	@test/model/run

fuzz: build ## the corpus of the fuzzers, as tests
	@meson test -C build --no-rebuild --print-errorlogs --suite fuzz

system: build ## black-box tests with a real nginx (pytest)
	@$(SETUP) setup_packages "$${setup_packages_run[@]}" "$${setup_packages_test[@]}"
	@$(PYTEST) test/system

servers: ## the private servers that tests run beside, by themselves
	@$(SETUP) setup_packages "$${setup_packages_test[@]}"
	@$(PYTEST) test/servers

demo-test: build ## ./run and the example of README.md, as a user would
	@$(SETUP) setup_packages "$${setup_packages_run[@]}" "$${setup_packages_test[@]}"
	@$(PYTEST) test/demo

sanitize: build-asan ## every test on the build with sanitizers
	@$(SETUP) setup_packages "$${setup_packages_run[@]}" "$${setup_packages_test[@]}"
	@meson test -C build-asan --no-rebuild --print-errorlogs
	@IDEM_BUILD=$(CURDIR)/build-asan IDEM_SANITIZE=1 $(PYTEST) test/system

bench: build ## measures the gateway against plain nginx (wrk)
	@$(SETUP) setup_packages "$${setup_packages_bench[@]}"
	@bench/run

lint: ## tidy, clang-format, cppcheck, shellcheck
	@$(SETUP) setup_packages "$${setup_packages_lint[@]}"
	@tools/lint

tidy: ## layers, sizes, banned calls, dead files
	@/usr/bin/python3 tools/tidy

clang-tidy: build ## clang-tidy over everything (slow)
	@$(SETUP) setup_packages "$${setup_packages_clang_tidy[@]}"
	@tools/lint --clang-tidy

format: ## formats the C files (nginx/ keeps nginx's own style)
	@$(SETUP) setup_packages "$${setup_packages_lint[@]}"
	@tools/lint --format

build-cover:
	@$(SETUP) setup_packages "$${setup_packages_build[@]}" "$${setup_packages_cover[@]}"
	@$(SETUP) setup_build build-cover -Db_coverage=true

cover: build-cover ## which lines the tests of Meson reach, as HTML
	@meson test -C build-cover --no-rebuild --print-errorlogs
	@ninja -C build-cover coverage-html

check: ## set up and pass every test: what CI runs
	@./check

clean: ## removes what was built; the demo's state too
	@rm -rf build build-asan build-cover
