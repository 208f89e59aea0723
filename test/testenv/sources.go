package testenv

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// DependOnSources reads the module's source files below root. Tests that build
// or run the program are not linked with its code, so that `go test` would
// repeat an old result after a change; it does look at the files a test reads.
func DependOnSources(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(path, "_test.go") || !slices.Contains([]string{".go", ".lua", ".yaml", ".json", ".mod"},
			filepath.Ext(path)) {
			return nil
		}
		_, err = os.ReadFile(path)
		return err
	})
}
