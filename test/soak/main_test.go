//go:build soak

// Package soak keeps three headgate processes under load for a long time, while
// their rules change and their Redis fails repeatedly, and looks for what
// only shows with time: something that grows, a call that is lost, a process
// that does not end.
//
// The test needs the build tag soak:
//
//	make soak            half an hour
//	make soak SOAK=2m    two minutes
package soak

import (
	"flag"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

var (
	length = flag.Duration("soak", 30*time.Minute, "how long the load runs, at least a minute")
	seed   = flag.Uint64("seed", 0, "seed of faults and keys, to repeat a run; 0 for a new one")
)

// program is the path of the headgate under test.
var program string

func TestMain(m *testing.M) {
	testenv.Main(m, func(root, dir string) (err error) {
		program, err = testenv.BuildHeadgate(root, dir)
		return err
	})
}
