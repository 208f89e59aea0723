package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// Main is the TestMain of a package two levels below root, the directory of the
// repository, that tests built programs. It calls build, which puts them into dir,
// runs the tests, removes dir and ends the process. The results of the tests are
// not taken from a cache unless all sources are the same.
func Main(m interface{ Run() int }, build func(root, dir string) error) {
	code := 0
	served, err := serveIdle()
	if !served {
		code, err = buildAndRun(m, build)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m interface{ Run() int }, build func(root, dir string) error) (code int, err error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return 0, err
	}
	// Called when the first test starts a process: go test notes only the files that are read after m.Run begins.
	dependOnSources = sync.OnceValue(func() error { return DependOnSources(root) })
	dir, err := os.MkdirTemp("", "headgate-built-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := build(root, dir); err != nil {
		return 0, err
	}
	return m.Run(), nil
}
