// Command lint is a vet tool: it runs the analyzers that `make lint` uses beside
// those of go vet and staticcheck. go vet caches what it finds, package by
// package.
//
//	go build -o bin/lint . && go vet -vettool=bin/lint ./...
package main

import (
	"github.com/gordonklaus/ineffassign/pkg/ineffassign"
	"golang.org/x/tools/go/analysis/passes/nilness"
	"golang.org/x/tools/go/analysis/passes/unusedwrite"
	"golang.org/x/tools/go/analysis/unitchecker"

	"github.com/headgate-rls/headgate/tools/lint/boolarg"
	"github.com/headgate-rls/headgate/tools/lint/condition"
	"github.com/headgate-rls/headgate/tools/lint/results"
)

func main() {
	unitchecker.Main(ineffassign.Analyzer, nilness.Analyzer, unusedwrite.Analyzer, boolarg.Analyzer, condition.Analyzer,
		results.Analyzer)
}
