// Package chaos takes the backend away from three headgate processes that are
// under load, in many ways, and looks at what their callers see: no call is
// late or ends in an error, limits hold, and the counters decide again as soon
// as the backend is back. How late is late is measured in the same run, by
// calls to a server that does nothing.
//
// A short form runs with all other tests. The whole needs the build tag chaos
// and some minutes: make chaos.
package chaos

import (
	"flag"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// program is the path of the headgate under test, scratch a directory for other
// builds of it, and sources the directory of the repository.
var program, scratch, sources string

func TestMain(m *testing.M) {
	flag.Parse()
	testenv.Main(m, func(root, dir string) (err error) {
		sources, scratch = root, dir
		if !testing.Short() { // else all tests are skipped
			program, err = testenv.BuildHeadgate(root, dir)
		}
		return err
	})
}
