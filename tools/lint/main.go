// Command lint is a vet tool: it runs go vet's own analyzers and those that `make lint` uses beside them and
// staticcheck's, so that each package is read once. go vet caches what it finds, package by package.
//
//	go build -o bin/lint . && go vet -vettool=bin/lint ./...
package main

import (
	"fmt"
	"os"

	"github.com/gordonklaus/ineffassign/pkg/ineffassign"
	"golang.org/x/tools/go/analysis/passes/nilness"
	"golang.org/x/tools/go/analysis/passes/unusedwrite"
	"golang.org/x/tools/go/analysis/suite/vet"
	"golang.org/x/tools/go/analysis/unitchecker"

	"github.com/headgate-rls/headgate/tools/lint/boolarg"
	"github.com/headgate-rls/headgate/tools/lint/condition"
	"github.com/headgate-rls/headgate/tools/lint/results"
)

func main() {
	// go vet asks so which of its flags the tool takes. What it takes becomes a part of the cache's keys: with -tags,
	// each set of tags would read all packages again, also those that have no file with a tag, and Go's own.
	if len(os.Args) == 2 && os.Args[1] == "-flags" {
		fmt.Println("[]")
		return
	}
	unitchecker.Main(append(vet.Suite, ineffassign.Analyzer, nilness.Analyzer, unusedwrite.Analyzer, boolarg.Analyzer,
		condition.Analyzer, results.Analyzer)...)
}
