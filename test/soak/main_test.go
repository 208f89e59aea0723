//go:build soak

// Package soak keeps three headgate processes under load for a long time, while
// their rules change and their Redis fails again and again, and looks for what
// only shows with time: something that grows, a call that is lost, a process
// that does not end.
//
// The test needs the build tag soak:
//
//	make soak            half an hour
//	make soak SOAK=2m    two minutes
package soak

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/testenv"
)

var (
	length = flag.Duration("soak", 30*time.Minute, "how long the load runs, at least a minute")
	seed   = flag.Uint64("seed", 0, "seed of faults and keys, to repeat a run; 0 for a new one")
)

// program is the path of the headgate under test.
var program string

func TestMain(m *testing.M) {
	code := 0
	served, err := testenv.ServeIdle()
	if !served {
		code, err = buildAndRun(m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "headgate-soak-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	sources, err := filepath.Abs("../..")
	if err != nil {
		return 0, err
	}
	if program, err = testenv.BuildHeadgate(sources, dir); err != nil {
		return 0, err
	}
	return m.Run(), nil
}
