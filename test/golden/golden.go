// Package golden compares what a test gets with a file in testdata, which `go test -update`
// writes anew.
package golden

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Check fails the test if got is not what file contains. With -update it writes the file.
func Check(tb testing.TB, file, got string) {
	tb.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			tb.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	if got != string(want) {
		tb.Errorf("%s differs (see git diff after go test -update):\ngot\n%swant\n%s", file, got, want)
	}
}
