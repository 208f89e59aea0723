package certs

import (
	"strings"
	"testing"
)

// Files that do not fit are errors.
func TestFilesWithoutAnEndAreErrors(t *testing.T) {
	for _, f := range []ClientFiles{{CA: "/dev/zero"}, {Cert: "/dev/zero", Key: "/dev/zero"}} {
		if _, err := f.Load(); err == nil || !strings.Contains(err.Error(), "/dev/zero: larger than 16 MiB") {
			t.Errorf("%+v: %v", f, err)
		}
	}
}
