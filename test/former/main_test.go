package former

import (
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// program is the path of this build, and sources the directory of the repository.
var program, sources string

func TestMain(m *testing.M) {
	testenv.Main(m, func(root, dir string) (err error) {
		sources = root
		program, err = testenv.BuildHeadgate(root, dir)
		return err
	})
}
