// Package attack is a hostile client of a running headgate: a table of attacks,
// of which each is measured by what it costs headgate (memory, CPU time) and by
// what a client on another connection, the bystander, sees meanwhile.
//
// A short form runs with all other tests. The whole is make attack. To attack
// another build of headgate, name it in HEADGATE_ATTACK_PROGRAM:
//
//	HEADGATE_ATTACK_PROGRAM=/path/to/headgate make attack
//
// A new attack is a row in rows_test.go.
package attack

import (
	"flag"
	"os"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// envProgram names the headgate to attack; without it one is built.
const envProgram = "HEADGATE_ATTACK_PROGRAM"

// full runs each attack at its full size.
var full = flag.Bool("full", false, "run each attack at its full size")

// program is the path of the headgate under attack.
var program string

func TestMain(m *testing.M) {
	flag.Parse()
	if address := os.Getenv(envFlood); address != "" {
		floodChild(address)
		return
	}
	if what := os.Getenv(envReaders); what != "" {
		readersChild(what)
		return
	}
	testenv.Main(m, func(root, dir string) (err error) {
		if program = os.Getenv(envProgram); program == "" && !testing.Short() {
			program, err = testenv.BuildHeadgate(root, dir)
		}
		return err
	})
}
