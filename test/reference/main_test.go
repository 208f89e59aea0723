package reference

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// program is headgate under the reference's name, and repository the directory of the sources.
var program, repository string

func TestMain(m *testing.M) {
	if os.Getenv(insideOf) != "" {
		os.Exit(m.Run())
	}
	testenv.Main(m, func(root, dir string) error {
		repository = root
		built, err := testenv.BuildHeadgate(root, dir)
		if err != nil {
			return err
		}
		program = filepath.Join(dir, "ratelimit")
		return os.Link(built, program)
	})
}
