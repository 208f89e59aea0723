# Everything here works from a clean checkout; "make" alone lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# make -n executes recipes that contain $(MAKE). It only prints those that contain this.
SUBMAKE := $(MAKE)

VERSION = $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# How long each fuzz target runs, and how long one package's tests may take.
FUZZTIME ?= 20s
TEST_TIMEOUT ?= 25m

# SQLite is C that was translated to Go, and a YAML document is read by one goroutine: the race
# detector has nothing to find in them, and makes them several times as slow.
RACE = -race -gcflags=modernc.org/...=-race=false -gcflags=go.yaml.in/...=-race=false

# Packages that make test runs without the race detector. Their tests drive programs that are built without it, read
# files, use one goroutine, or test a suite that stores, layers and slots/sqlstore pass with the race detector.
PLAIN = /(test/(attack|bench|chart|compat|e2e|former|llm|notify|reference|repo)|limit|descriptors|descriptors/rulefile|backends/backendtest|backends/internal/batch|internal/app/replay|slots/plan|slots/internal/slotstest)$$
PLAIN_RACE =

# Without symbols for a debugger a test program links in three quarters of the time; traces need none.
STRIPPED = -ldflags=-s

# A process with the race detector sleeps for a second at its end, and these are hundreds: each
# package's tests, and what they start.
RACE_ENDS = atexit_sleep_ms=10

# The tag rlsonly takes settings and commands away, and tests must pass without them.
RLSONLY = echo "== tests of the smaller program's settings and commands"; go test -vet=off -tags rlsonly ./internal/app/config ./cmd/headgate

# Arguments for the programs behind run, demo and bench: make run ARGS="--config x.yaml"
ARGS ?=

# Packages that take longest. They start first, so that none is left to run alone.
LONGEST = /(backends/(dynamodb|redis|sqlstore)|cmd/headgate|slots/sqlstore|test/(attack|notify|testenv))$$

# How many other seeds each random test gets by make hunt.
SEEDS ?= 20

# How long make soak puts the service under load.
SOAK ?= 30m
ROUNDS ?= 1

.PHONY: help run install build notify demo demo-llm setup check test test-all hunt bench chaos soak charttest attack egtest release releasetest oracle-test lint vuln fuzz changelog clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# Other terminals read headgate.env, and so find the service and have its token.
run: ## start the service from source, slots and policies in headgate.db (ARGS="--rules rules/")
	@[ -s headgate.env ] || (umask 077 && \
		echo "export HEADGATE_ADMIN_TOKEN=\$${HEADGATE_ADMIN_TOKEN:-$$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')}" >headgate.env)
	@. ./headgate.env && echo "pages:    http://localhost:8080/#token=$$HEADGATE_ADMIN_TOKEN (the token is in headgate.env)" && \
	echo "commands: . ./headgate.env; go run ./cmd/headgate top (or explain, status, policy set …)" && \
	go run ./cmd/headgate serve $(if $(findstring --rules,$(ARGS)),,--example) --slots sqlite:headgate.db --policies sqlite:headgate.db --slots-seed 100/PT4S --slots-ahead 10m $(ARGS)

install: ## install headgate into the directory of go install (GOBIN)
	CGO_ENABLED=0 go install -trimpath -ldflags "-s -w -X main.version=$(VERSION)" ./cmd/headgate
	@echo "installed $$(go list -f '{{.Target}}' ./cmd/headgate); its directory must be on PATH"

build: ## build bin/headgate and the notification gateway's programs, static binaries
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/ ./cmd/headgate ./cmd/notify-gateway ./cmd/notify-sender
	@echo "built bin/headgate, bin/notify-gateway and bin/notify-sender $(VERSION)"

demo: ## show the service at work behind a real Envoy
	@[ -x "$${HEADGATE_TESTENV_DIR:-$$HOME/.cache/headgate-testenv}/envoy-1.40.0/envoy" ] || ./scripts/setup-testenv.sh envoy
	@go run ./test/demo $(ARGS)

demo-llm: ## show what 200 clients of a language model spend, without and with reservations
	@[ -x "$${HEADGATE_TESTENV_DIR:-$$HOME/.cache/headgate-testenv}/envoy-1.40.0/envoy" ] || ./scripts/setup-testenv.sh
	@go run ./test/llm/demo $(ARGS)

notify: setup ## start the notification gateway with PostgreSQL, Kafka and Redis, and say what to try
	@go build -o bin/notify-try ./test/notify/try
	@bin/notify-try $(ARGS)

setup: ## install the servers that the tests talk to
	@./scripts/setup-testenv.sh

# These tests run headgate behind real servers: test/attack, chaos, e2e, soak. lint has vetted all. Three packages
# at a time keep two cores busy, as tests wait. A shell that has read headgate.env has a token, which tests must not see.
check: lint ## check format, vet, staticcheck and the tests that need no server, in three minutes
	@echo "== tests that need no server"
	@unset HEADGATE_ADMIN_TOKEN; HEADGATE_TEST_SERVERS=none go test -short -vet=off -p 3 $$(go list ./... | grep -Ev '/test/(attack|chaos|e2e|soak)$$$$')
	@unset HEADGATE_ADMIN_TOKEN; export HEADGATE_TEST_SERVERS=none; $(RLSONLY) -short

# Lint runs beside the first half of the tests, which leave a core idle now and then, and yields to them.
# Every part runs even when an earlier one failed, so that one run shows all that is broken; only without the servers
# there is no point in going on.
# Up to three tests that failed run once more, alone, as a busy machine can make a test with real
# servers fail. The summary names them. A data race or a crash is final. Four packages at a time keep
# two cores busy, as tests wait for servers; some of those without the race detector measure time, and are two.
test: setup ## run lint and all tests on all servers, many in a short form, and say what ran
	@report=$$(mktemp -d); trap 'rm -rf "$$report"*' EXIT; \
	unset HEADGATE_ADMIN_TOKEN; export HEADGATE_TEST_REPORT=$$report HEADGATE_TEST_MUSTRUN GORACE="$(RACE_ENDS) $${GORACE:-}"; \
	lint=passed tests=passed engines=passed; \
	nice -n 19 $(SUBMAKE) lint >"$$report.lint" 2>&1 & linter=$$!; \
	echo "== tests, with the race detector (the first build takes a minute or two), and lint beside them"; \
	run() { \
		packages=$$(go list ./... | grep -E $$2); \
		packages="$$(grep -E '$(LONGEST)' <<<"$$packages") $$(grep -vE '$(LONGEST)' <<<"$$packages")"; \
		bin/gotestsum --format standard-quiet --hide-summary=skipped --rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-run-root-test \
			--rerun-fails-abort-on-data-race --rerun-fails-report="$$report.again.$$1" --packages "$$packages" -- \
			$$3 -vet=off -timeout $(TEST_TIMEOUT); \
	}; \
	if HEADGATE_TEST_MUSTRUN=$$(go run ./test/testenv/engines list); then \
		go -C tools/gotestsum build -o ../../bin/gotestsum gotest.tools/gotestsum && \
		run race "-v $(PLAIN)" "$(RACE) $(STRIPPED) -p 4" || tests=FAILED; \
		wait $$linter || lint=FAILED; \
		cat "$$report.lint"; \
		echo "== tests without the race detector"; \
		run plain "$(PLAIN)" "$(PLAIN_RACE) $(STRIPPED) -p 2" || tests=FAILED; \
		$(RLSONLY) || tests=FAILED; \
		echo "== tests of the program with Oracle's driver"; \
		go test -tags godror -run 'TestOracleDriver|TestOracleLogin|TestOracleErrorKinds' ./internal/kit/sqldb ./slots/sqlstore || tests=FAILED; \
		echo; \
		go run ./test/testenv/engines report "$$report" || engines=FAILED; \
		[ -n "$${HEADGATE_TEST_LONG:-}" ] || echo "not run: long forms of tests, a release made twice and started (make test-all)"; \
	else \
		tests=FAILED engines=FAILED; \
		wait $$linter || lint=FAILED; \
		cat "$$report.lint"; \
	fi; \
	echo; \
	again=$$(cat "$$report".again.* 2>/dev/null || true); \
	if [ -n "$$again" ]; then echo "tests that failed at first:"; echo "$$again"; echo; fi; \
	echo "summary: lint $$lint, tests $$tests, engines $$engines ($$SECONDS s)"; \
	[ "$$lint $$tests $$engines" = "passed passed passed" ]

# CONTRIBUTING.md says what make test leaves to it. It takes hours.
test-all: ## make test with every test in its long form; a nightly workflow runs it
	HEADGATE_TEST_LONG=1 $(SUBMAKE) test TEST_TIMEOUT=3h PLAIN_RACE="$(RACE)"

# In make test, random tests have a seed that is always the same, and a short form.
hunt: setup ## run the random tests with other seeds, in their long form (SEEDS=20)
	HEADGATE_TEST_SEED=random HEADGATE_TEST_LONG=1 go test -timeout 0 -count $(SEEDS) ./limit ./descriptors/... ./backends/... ./slots/...

bench: ## measure the service (ARGS="...")
	go run ./test/bench $(ARGS)

chaos: setup ## services and stores under load while Redis, databases and DynamoDB Local fail (six minutes)
	go test -tags chaos -count=1 -v ./test/chaos
	HEADGATE_TEST_LONG=1 go test -count=1 -v -run Fault ./test/notify ./notify/kafka
	HEADGATE_TEST_LONG=1 go test -count=1 -v -run 'Chaos|StoppedHolder|CutAt|UnderLoad|KilledProcess|FullDisk|Crash|TakesOver|ClockThatIsSet|Lost' ./backends/sqlstore ./backends/redis ./backends/dynamodb

# The test ends by itself if it hangs, some minutes after SOAK.
soak: setup ## faults, attacks and outages in turn, for hours (SOAK=30m of each ROUNDS=1)
	for i in $$(seq $(ROUNDS)); do \
		go test -tags soak -count=1 -v -timeout 0 ./test/soak -soak $(SOAK) && $(SUBMAKE) attack chaos && \
		HEADGATE_TEST_LONG=1 go test -count=1 -v -run Outlive ./policies/sqlstore || exit 1; \
	done

# make test runs these tests, too, once this has installed what they need.
charttest: ## the chart in a real API server of Kubernetes, Envoy with a real istiod (builds them: some minutes)
	@./scripts/setup-testenv.sh kube-apiserver
	HEADGATE_TEST_LONG=1 HEADGATE_TEST_MUSTRUN=helm,manifests,kube-apiserver,etcd,istioctl,istiod,kubeconform,prometheus go test -count=1 -v ./test/chart
	cd tools/kube-apiserver && go mod tidy -diff
	cd tools/istio && go mod tidy -diff && go vet .

attack: setup ## attack the service in every known way, and print what that costs (two minutes)
	go test -count=1 -v ./test/attack -full

# Building Envoy Gateway takes minutes of CPU, once; the tests take two.
egtest: setup ## run Envoy Gateway's own cases, with headgate as its rate limit service
	@./scripts/setup-egtest.sh
	go test -tags egtest -count=1 -v ./test/egtest

release: ## make the archives, the chart and the image of a release in dist (RELEASE=v1.0.0)
	@[ -n "$(RELEASE)" ] || { echo "say which release: make release RELEASE=v1.0.0"; exit 1; }
	@./scripts/release.sh "$(RELEASE)"

# It needs Docker. Whoever has run it says so in the documents: until then they say that nobody has.
oracle-test: ## limits, slots and policies on a real Oracle Database Free, in containers (Docker; a quarter of an hour)
	@./scripts/oracle-test.sh

releasetest: setup ## make a release twice and compare them; start what is in it (some minutes)
	HEADGATE_TEST_LONG=1 go test -count=1 -v -timeout 60m ./test/release

# The tags chaos, soak and egtest only add files, so that one look sees everything. bin/lint does what go vet does, too.
# GOGC spends memory to save a fifth of staticcheck's CPU.
lint: ## check formatting, vet, staticcheck, tools/lint, go.mod and the scripts
	@echo "== gofmt"
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "not formatted, run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	@echo "== go vet and tools/lint: boolarg, condition, results, ineffassign, nilness, unusedwrite"
	@go -C tools/lint test ./...
	@go -C tools/lint build -trimpath -o ../../bin/lint .
	@go vet -vettool=bin/lint -tags chaos,soak,egtest ./...
	@go vet -vettool=bin/lint -tags godror ./internal/kit/sqldb ./slots/sqlstore
	@go vet -vettool=bin/lint -tags rlsonly ./...
	@echo "== staticcheck"
	@GOGC=400 GOMEMLIMIT=3GiB go tool staticcheck -tags chaos,soak,egtest ./...
	@go tool staticcheck -tags godror ./internal/kit/sqldb ./slots/sqlstore
	@echo "== unparam, errcheck, misspell"
	@go -C tools/lint build -o ../../bin/unparam mvdan.cc/unparam
	@GOGC=400 bin/unparam ./...
	@go -C tools/lint build -o ../../bin/errcheck github.com/kisielk/errcheck
	@bin/errcheck -ignoretests -exclude tools/lint/errcheck.txt ./... > bin/errcheck.out || [ $$? = 1 ] # 1: found some
	@if grep -v 'defer .*Close()$$' bin/errcheck.out; then echo "nobody looks at these errors; write _ = where that is right"; exit 1; fi
	@go -C tools/lint build -o ../../bin/misspell github.com/golangci/misspell/cmd/misspell
	@git ls-files | xargs bin/misspell -error -i embeded,sinse,levle,nmae # which tests misspell on purpose
	@echo "== actionlint"
	@go -C tools/lint build -o ../../bin/actionlint github.com/rhysd/actionlint/cmd/actionlint
	@bin/actionlint .github/workflows/*.yml
	@echo "== go mod tidy"
	@go mod tidy -diff || { echo "go.mod or go.sum is out of date, run: go mod tidy"; exit 1; }
	@echo "== tools"
	@for module in tools/*/go.mod; do \
		case $$module in tools/kube-apiserver/* | tools/istio/*) continue ;; esac; \
		cd "$$(dirname $$module)"; \
		if [ -n "$$(go list ./... 2>/dev/null)" ]; then go vet ./...; fi; \
		go mod tidy -diff || { echo "$$module or its go.sum is out of date, run there: go mod tidy"; exit 1; }; \
		cd - >/dev/null; \
	done
	@echo "== scripts"
	@for f in scripts/*.sh .ci/run; do bash -n "$$f"; done
	@if command -v shellcheck >/dev/null; then shellcheck --severity=warning scripts/*.sh .ci/run; \
	else echo "shellcheck is not installed (make setup installs it): the scripts are only parsed"; fi

vuln: ## look for known vulnerabilities in what the programs call (asks vuln.go.dev)
	@go -C tools/vuln build -o ../../bin/govulncheck golang.org/x/vuln/cmd/govulncheck
	@bin/govulncheck ./...
	@CGO_ENABLED=1 bin/govulncheck -tags godror ./cmd/headgate

fuzz: ## run every fuzz target for FUZZTIME, and fail if one tries fewer than 10,000 inputs a minute
	@./scripts/fuzz.sh $(FUZZTIME)

changelog: ## move changelog/unreleased into CHANGELOG.md, and have the chart and pages name the release (RELEASE=v1.0.0)
	@[ -n "$(RELEASE)" ] || { echo "say which release: make changelog RELEASE=v1.0.0"; exit 1; }
	@go test -count=1 ./test/repo -run '^TestChangelogEntries$$' -release "$(RELEASE)"
	go test -count=1 ./test/chart -run 'Rendered|Kustomize' -update

clean: ## remove what was built
	rm -rf bin
