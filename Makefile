# Tandem. `make help` explains every target.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS   += --no-print-directory
.DEFAULT_GOAL := help

BIN      := bin
TOOLS    := .bin
SERVICES := storage configsync ledger tandemctl
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -s -w -X main.version=$(VERSION)

BUF      := $(TOOLS)/buf-1.75.0
LINT     := $(TOOLS)/golangci-lint-2.15.0
GRPCURL  := $(TOOLS)/grpcurl-1.9.3
PKGS     := ./pkg/... ./services/...

.PHONY: help
help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the static binaries into bin/.
	@mkdir -p $(BIN)
	@for s in $(SERVICES); do CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/$$s ./services/$$s; done

.PHONY: demo
demo: build ## The main job, start to end: a RocketMQ store replicated through kills, a consumer on both sides, a ledger's elections, all verified.
	@go run ./deploy/e2e/demo -bin $(BIN)

.PHONY: interop
interop: build ## Tandem beside the real RocketMQ 5.3.3 and 4.9.7, in both directions (Java 17, Maven; about 12 minutes).
	@go run ./deploy/e2e/interop -bin $(BIN)

ROUNDS ?= 20

.PHONY: torture
torture: build ## Whole nodes killed, frozen, cut off and promoted under load; histories checked (ROUNDS=20 SEED=n).
	@go run ./deploy/e2e/torture -bin $(BIN) -rounds $(ROUNDS) -seed $(or $(SEED),0)

DURATION ?= 10m

.PHONY: torture-ledger
torture-ledger: build ## Whole ledgers killed, frozen, cut off and with a full disk under load; histories checked (DURATION=10m SEED=n).
	@go run ./deploy/e2e/tortureledger -bin $(BIN) -duration $(DURATION) -seed $(or $(SEED),0)

KILLS ?= 100

.PHONY: failover
failover: build ## How soon the next leader acknowledges after a kill -9, and what the return of a cut-off follower does (KILLS=100).
	@go run ./deploy/e2e/tortureledger -bin $(BIN) -kills $(KILLS)
	@go run ./deploy/e2e/tortureledger -bin $(BIN) -isolate 1m

.PHONY: test
test: ## All tests, with the race detector and, for mapped memory, which it does not see, without.
	go test -race -shuffle=on -timeout 9m $(PKGS)
	go test -timeout 5m ./pkg/vfs/... ./pkg/mappedfile/... ./services/storage/...

.PHONY: soak
soak: ## The timing tests at full length (minutes instead of milliseconds).
	TANDEM_SOAK=1 go test -count=1 -p 1 -timeout 60m ./services/storage/... ./services/configsync/...

.PHONY: fuzz
fuzz: ## Each fuzz target for 30 s.
	@for p in $$(go list $(PKGS)); do \
	  for f in $$(go test -list '^Fuzz' $$p | grep '^Fuzz' || true); do go test -run '^$$' -fuzz "^$$f$$" -fuzztime 30s $$p; done; done

.PHONY: bench
bench: ## The product beside the machine's limits, Redis and RocketMQ, in one run, as ratios (ROWS=3,commit ROUNDS=5; rows: 1 to 10, 15, 19, commit, config, rmq).
	@go run ./deploy/e2e/bench -rows "$(ROWS)" $(if $(filter file,$(origin ROUNDS)),,-rounds $(ROUNDS))

.PHONY: generate
generate: $(BUF) ## Generate gen/ from proto/.
	$(BUF) generate

.PHONY: lint
lint: $(BUF) $(LINT) ## Lint protos and code, and check that gen/ and go.mod are up to date.
	$(BUF) lint
	$(BUF) format --diff --exit-code
	@rm -rf .gen-check && $(BUF) generate -o .gen-check && diff -r gen .gen-check/gen >/dev/null || \
	  { rm -rf .gen-check; echo 'gen/ does not match proto/: run make generate and commit'; exit 1; }
	@rm -rf .gen-check
	$(LINT) fmt --diff
	$(LINT) run ./...
	go mod tidy -diff
	go test -count=1 ./pkg/internal/archtest

.PHONY: ci
ci: lint test build ## What CI runs: lint, tests, builds, the demo, 20 rounds of torture, RocketMQ beside it (Java 17, Maven).
	@go run ./deploy/e2e/demo -bin $(BIN)
	go test -timeout 5m ./deploy/e2e/...
	@go run ./deploy/e2e/torture -bin $(BIN)
	@go run ./deploy/e2e/tortureledger -bin $(BIN) -duration 60s
	@go run ./deploy/e2e/interop -bin $(BIN)

.PHONY: images
images: ## Build the container images (needs a Docker engine).
	@mkdir -p $(BIN)/data
	@for s in $(SERVICES); do docker build -q -f deploy/docker/Dockerfile --build-arg SERVICE=$$s -t tandem/$$s:latest $(BIN) >/dev/null && \
	  docker image inspect -f '{{index .RepoTags 0}} {{.Size}} bytes' tandem/$$s:latest; done
images: build

.PHONY: compose-demo
compose-demo: ## The demo's story across nine containers (needs make images and a Docker engine).
	@go run ./deploy/e2e/demo -compose deploy/compose.yaml -bin $(BIN)

.PHONY: tools
tools: $(BUF) $(LINT) $(GRPCURL) ## Install the pinned tools into .bin/.

$(BUF):
	@GOBIN=$(CURDIR)/$(TOOLS) go install github.com/bufbuild/buf/cmd/buf@v1.75.0 && mv $(TOOLS)/buf $@

$(LINT):
	@GOBIN=$(CURDIR)/$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 && mv $(TOOLS)/golangci-lint $@

$(GRPCURL):
	@GOBIN=$(CURDIR)/$(TOOLS) go install github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3 && mv $(TOOLS)/grpcurl $@

.PHONY: clean
clean: ## Remove what was built.
	rm -rf $(BIN) $(TOOLS) .gen-check
