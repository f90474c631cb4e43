# `make help` lists what there is. Everything that is missing is built or installed on the way; what is up to date costs nothing.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help

GO ?= go
# Where every program that make builds is found, by scripts and tests too.
export PATH := $(CURDIR)/bin:$(CURDIR)/lab/bin:$(PATH)

# The linter's findings are cached beside Go's own, so that they are found again whatever home the user has.
export GOLANGCI_LINT_CACHE := $(shell $(GO) env GOCACHE)/golangci-lint

# One set of flags for every program, test and linter, or what they have in common, and Kubernetes most of all, would be compiled once for
# each. Without debug information compiling takes a third less. With these tags even what needs cgo shares nearly all of its packages with
# what is built without: the standard library's own use of it is left out. And without the folder's path in them, what one clone or
# worktree has compiled is there for all others.
FLAGS := -trimpath -gcflags=all=-dwarf=false -tags=netgo,osusergo
ifeq ($(findstring $(FLAGS),$(GOFLAGS)),)
export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) $(FLAGS))
endif
NO_CGO := CGO_ENABLED=0
# Test programs are linked without what only debuggers read, which takes a third less.
GO_TEST := $(GO) test -ldflags=-s
# The packages that need librados, and so cannot be built without cgo: here, among the end-to-end tests, and of the lab. All others are
# tested without, since the linker leaves out a third more then: with cgo it has to keep whatever a plugin might ask for.
CGO := ./cmd/lockkeeper-worker/... ./internal/ceph/rados
E2E_CGO := ./test/e2e ./test/mons ./test/bench/...
LAB_CGO := ./cmd/lab-load/... ./internal/load/...

# Prerequisites that make can compare: every source of the main module, and every source of the lab.
sources = $(shell find $(1) -name '*.go' -not -name '*_test.go' 2>/dev/null)
SOURCES := go.mod go.sum $(call sources,activities api cli cmd internal starter worker workflows)
LAB_SOURCES := lab/go.mod lab/go.sum lab/build.sh $(call sources,lab/cmd lab/internal)

##@ The two to begin with

.PHONY: demo
demo: build ## drain a storage node under write load in a real small world, and watch
	@./hack/demo.sh

.PHONY: demo-longhorn
demo-longhorn: build longhorn ## three nodes that hold one volume of Longhorn are to go at once, and every byte stays
	@./hack/demo-longhorn.sh

.PHONY: demo-upgrade
demo-upgrade: build ## Ceph 16, then 18, then 20, on the same data and under write load: ARGS=--deployments for Rook-shaped OSDs
	@./hack/demo-upgrade.sh $(ARGS)

.PHONY: test
test: ## everything: lint, unit tests, end-to-end tests in the lab
	@hack/step.sh lint $(MAKE) lint
	@$(MAKE) build
	@hack/beside.sh "unit tests" "$(MAKE) test-unit" "end-to-end tests" $(MAKE) test-e2e

##@ Tests

.PHONY: test-all
test-all: ## every scenario, on Ceph 16, 18 and 20 and in an upgrade, beside all of `make test`: hours
	@hack/step.sh lint $(MAKE) lint
	@hack/step.sh "Cluster API" $(MAKE) cluster-api
	@hack/step.sh Longhorn $(MAKE) longhorn
	@hack/step.sh "Cluster Autoscaler" $(MAKE) autoscaler
	@hack/step.sh Karpenter $(MAKE) karpenter
	@hack/step.sh "unit tests" $(MAKE) test-unit ALL=1
	@for release in 20 18 16; do hack/step.sh "end-to-end tests on Ceph $$release" $(MAKE) test-e2e ALL=1 CEPH=$$release || exit 1; done
	@hack/step.sh "adapter on Ceph 16, 18 and 20" $(MAKE) test-adapter
	@hack/step.sh "upgrade from Ceph 16 to 20" $(MAKE) demo-upgrade
	@hack/step.sh "upgrade of Deployments" $(MAKE) demo-upgrade ARGS=--deployments

.PHONY: test-times
test-times: build ## all of `make test`, and where its time went: by stage, package, test, and step of each scenario
	@$(MAKE) test TESTFLAGS=-json 2>&1 | $(GO) run ./hack/testtimes

.PHONY: test-unit
test-unit: build ## unit and workflow tests of both modules, of the longest this commit's share: ALL=1 for all
	@others=$$($(GO) list $(CGO) ./test/...); packages=$$($(NO_CGO) $(GO) list ./... | grep -vxF "$$others"); \
		hack/share.sh $(if $(ALL),TEST_ALL=1) $(NO_CGO) $(GO_TEST) $(TESTFLAGS) -timeout 60m ./workflows $$packages
	$(GO_TEST) $(TESTFLAGS) $(CGO)
	cd lab && $(NO_CGO) TEST_ALL=$(ALL) TEST_COMMIT=$$(git rev-parse HEAD 2>/dev/null) $(GO_TEST) $(TESTFLAGS) $$($(NO_CGO) $(GO) list ./... | grep -vE '/lab/(cmd/lab-load|internal/load|test)')
	cd lab && $(GO_TEST) $(TESTFLAGS) $(LAB_CGO)

.PHONY: test-e2e
test-e2e: build ## this commit's share of the scenarios in the real lab: ALL=1 for all, RUN=TestScenarios//name for one, CEPH=16
	@hack/share.sh LAB_CEPH=$(CEPH) LABS=$(LABS) RUN='$(RUN)' WITH_CGO='$(E2E_CGO)' $(if $(ALL)$(RUN),TEST_ALL=1) hack/e2e.sh -ldflags=-s $(TESTFLAGS)

.PHONY: test-adapter
test-adapter: build ## what unit tests take for granted about Ceph, asked of real clusters of 16, 18 and 20
	@hack/test-adapter.sh

# The release that new clusters have. The lab fetches it once, which takes a quarter of a minute.
CEPH ?= 20

# Labs that run side by side. Each fills a core when its Ceph starts; with more of them than cores what takes seconds takes minutes.
LABS ?= 2

.PHONY: crash
crash: build ## let something die at every moment of a drain, a rollout, a migration of mons, a failover and a fence, hours: VICTIM=worker EVERY=1 OF=migration
	$(GO) test ./test/e2e -count=1 -timeout 12h -v -run 'TestCrashes$(if $(OF),/$(OF))' -crash-every $(or $(EVERY),1) -crash-victim '$(VICTIM)'

.PHONY: upgrade
upgrade: build ## replace an older version by this one while everything is evicted: OLDER=path/to/its/checkout, built
	$(GO) test ./test/e2e -count=1 -timeout 20m -v -run TestUpgrade -older '$(abspath $(OLDER))'

.PHONY: sim
sim: ## random schedules in the simulated world: N=20000 SEED=1; rollouts of OSDs in every 2nd: ROLLOUTS=2; nodes fenced in every 9th: FENCING=9
	@$(GO) test ./workflows -run '^TestSimulation$$' -count=1 -timeout 24h -v -sim.report -sim.n=$(or $(N),20000) -sim.seed=$(or $(SEED),1) -sim.rollouts=$(or $(ROLLOUTS),2) -sim.fencing=$(or $(FENCING),9) | grep -vE '^(=== |--- PASS|    --- PASS|        --- PASS|PASS|ok )'

.PHONY: sim-mons
sim-mons: ## random schedules of what happens to mons that are moved and replaced: N=20000 SEED=1
	@$(GO) test ./workflows -run '^TestMonsInDisorder$$' -count=1 -timeout 24h -v -sim.report -sim.mons=$(or $(N),20000) -sim.seed=$(or $(SEED),1) | grep -vE '^(=== |--- PASS|    --- PASS|        --- PASS|PASS|ok )'

.PHONY: sim-longhorn
sim-longhorn: ## random schedules of what happens to a Longhorn whose nodes leave: N=20000 SEED=1
	@$(GO) test ./workflows -run '^TestLonghornInDisorder$$' -count=1 -timeout 24h -v -sim.report -sim.longhorn=$(or $(N),20000) -sim.seed=$(or $(SEED),1) | grep -vE '^(=== |--- PASS|    --- PASS|        --- PASS|PASS|ok )'

.PHONY: mutants
mutants: lab/bin/lab ## prove that the tests find bugs: NAME=one for one
	$(GO) run ./hack/mutants $(NAME)

.PHONY: bench
bench: build ## numbers as lines "name value unit": ARGS=--quick for few of each
	@./hack/bench.sh $(ARGS)

.PHONY: bench-late
bench-late: build ## how late Ceph's word is, on Ceph 16, 18 and 20
	@RUN='^TestLate$$' hack/test-adapter.sh | grep -E '^(Ceph|late_|---|FAIL)'

.PHONY: bench-osds
bench-osds: build ## numbers of rollouts, of 24 OSDs and at Ceph's default periods: ARGS=--quick for few
	@./hack/bench-osds.sh $(ARGS)

.PHONY: bench-mons
bench-mons: build ## how long a mon takes to move, and where the time goes: ARGS=--quick for few
	@./hack/bench-mons.sh $(ARGS)

.PHONY: bench-fencing
bench-fencing: build ## how soon Machines are held and released, and whether any release was wrong: ARGS=--quick for few
	@./hack/bench-fencing.sh $(ARGS)

.PHONY: bench-longhorn
bench-longhorn: build longhorn ## how soon nodes of Longhorn may leave, with and without lockkeeper, and what an attach costs: ARGS=--quick for few
	@./hack/bench-longhorn.sh $(ARGS)

# lab/bin/lab comes first because whoever reads the lab's code has to compile Kubernetes, and only compile.sh says how far it is.
# In the lab without staticcheck: it reads all of Kubernetes for its facts, which doubles the time of the first run.
.PHONY: lint
lint: packages bin/golangci-lint bin/workflowcheck bin/controller-gen lab/bin/lab ## linters, import rules, determinism of workflows, generated files
	golangci-lint run ./...
	cd lab && $(NO_CGO) golangci-lint run --config ../.golangci.yml --disable=staticcheck $$($(NO_CGO) $(GO) list -f '{{.Dir}}' ./... | grep -vE '/lab/(cmd/lab-load|internal/load)')
	cd lab && golangci-lint run --config ../.golangci.yml $(LAB_CGO)
	workflowcheck -test=false -config tools/workflowcheck.yaml ./workflows/...
	@hack/generate.sh --check
	@if command -v shellcheck >/dev/null; then shellcheck -x .ci/run hack/*.sh lab/*.sh lab/*/*.sh lab/internal/rookceph/*.sh lab/internal/longhorn/scripts/*.sh; else echo "lint: shellcheck is not installed, so scripts are not checked"; fi

##@ Building

.PHONY: build
build: packages bin/lockkeeper bin/lockkeeper-worker lab/bin/lab lab/bin/lab-load lab/bin/temporal ## all programs, into bin/ and lab/bin/

bin/lockkeeper: $(SOURCES)
	@$(NO_CGO) hack/compile.sh bin/lockkeeper "1 to 2 minutes" . ./cmd/lockkeeper -- $(GO) build -o $@ ./cmd/lockkeeper
	@touch $@

bin/lockkeeper-worker: $(SOURCES) | packages
	@hack/compile.sh bin/lockkeeper-worker "1 to 2 minutes" . ./cmd/lockkeeper-worker -- $(GO) build -o $@ ./cmd/lockkeeper-worker
	@touch $@

lab/bin/lab: $(LAB_SOURCES)
	@$(NO_CGO) hack/compile.sh "lab/bin/lab, with all of Kubernetes" "5 to 10 minutes" lab "./cmd/lab ./cmd/lab-in-image ./cmd/lab-kubectl" -- lab/build.sh
	@touch $@

lab/bin/lab-load: $(LAB_SOURCES) | packages
	@hack/compile.sh lab/bin/lab-load "half a minute" lab ./cmd/lab-load -- $(GO) -C lab build -o bin/lab-load ./cmd/lab-load
	@touch $@

lab/bin/temporal: lab/temporal/go.mod lab/temporal/go.sum
	@$(NO_CGO) hack/compile.sh "lab/bin/temporal, server and UI" "3 to 5 minutes" lab/temporal tool -- $(GO) -C lab/temporal build -o ../bin/temporal tool
	@touch $@

.PHONY: cluster-api
cluster-api: lab/bin/cluster-api ## the core manager of Cluster API, for `lab up --machines`: 2 to 4 minutes, once

lab/bin/cluster-api: lab/clusterapi/go.mod lab/clusterapi/go.sum lab/clusterapi/build.sh
	@$(NO_CGO) hack/compile.sh "lab/bin/cluster-api, Cluster API's core manager" "2 to 4 minutes" lab/clusterapi tool -- lab/clusterapi/build.sh
	@touch $@

.PHONY: longhorn
longhorn: lab/bin/longhorn/longhorn-manager ## Longhorn 1.10, for `lab up --longhorn`: 3 to 6 minutes, once

LONGHORN_SOURCES := lab/longhorn/go.mod lab/longhorn/go.sum lab/longhorn/build.sh $(call sources,lab/longhorn)
lab/bin/longhorn/longhorn-manager: $(LONGHORN_SOURCES)
	@hack/compile.sh "lab/bin/longhorn, Longhorn's programs" "3 to 6 minutes" lab/longhorn "./cmd/... tool" -- lab/longhorn/build.sh
	@touch $@

.PHONY: autoscaler
autoscaler: lab/bin/cluster-autoscaler ## the Cluster Autoscaler 1.33, for `lab up --autoscaler`: 4 to 6 minutes, once

lab/bin/cluster-autoscaler: lab/autoscaler/go.mod lab/autoscaler/go.sum lab/autoscaler/build.sh $(call sources,lab/autoscaler)
	@$(NO_CGO) GOFLAGS="$(GOFLAGS) -tags=externalgrpc" hack/compile.sh "lab/bin/cluster-autoscaler, the Cluster Autoscaler" "4 to 6 minutes" lab/autoscaler . -- lab/autoscaler/build.sh
	@touch $@

.PHONY: karpenter
karpenter: lab/bin/karpenter ## Karpenter 1.14, for `lab up --karpenter`: 2 to 4 minutes, once

lab/bin/karpenter: lab/karpenter/go.mod lab/karpenter/go.sum lab/karpenter/build.sh
	@$(NO_CGO) hack/compile.sh "lab/bin/karpenter, Karpenter with its kwok provider" "2 to 4 minutes" lab/karpenter tool -- lab/karpenter/build.sh
	@touch $@

.PHONY: generate
generate: bin/controller-gen ## write the CRDs and the deep copies from the types in api/
	@hack/generate.sh

# The tools of this repository, at the versions that tools/ pins.
bin/controller-gen: tools/go.mod tools/go.sum
	@hack/compile.sh bin/controller-gen "1 minute" tools sigs.k8s.io/controller-tools/cmd/controller-gen -- $(GO) -C tools build -o ../$@ sigs.k8s.io/controller-tools/cmd/controller-gen
	@touch $@

bin/workflowcheck: tools/go.mod tools/go.sum
	@hack/compile.sh bin/workflowcheck "half a minute" tools go.temporal.io/sdk/contrib/tools/workflowcheck -- $(GO) -C tools build -o ../$@ go.temporal.io/sdk/contrib/tools/workflowcheck
	@touch $@

bin/golangci-lint: tools/golangci-lint/go.mod tools/golangci-lint/go.sum
	@hack/compile.sh bin/golangci-lint "1 to 3 minutes" tools/golangci-lint tool -- $(GO) -C tools/golangci-lint build -o ../../bin/ tool
	@touch $@

# A package that is missing is a reason to stop before anything long begins.
.PHONY: packages
packages:
	@hack/packages.sh

##@ The lab

.PHONY: lab-up
lab-up: build ## start a lab to play in: ARGS="--name mine --zones 3"
	lab up $(ARGS)

.PHONY: lab-down
lab-down: ## stop it: ARGS="--name mine"
	lab down $(ARGS)

##@ Tidying up

.PHONY: env
env: ## what make sets for the programs that it calls, for a shell that calls them itself: eval "$(make env)"
	@echo 'export GOFLAGS="$(GOFLAGS)" GOLANGCI_LINT_CACHE="$(GOLANGCI_LINT_CACHE)" PATH="$(CURDIR)/bin:$(CURDIR)/lab/bin:$$PATH"'

.PHONY: clean
clean: ## remove what make built (not Go's caches)
	rm -rf bin lab/bin

.PHONY: help
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
