package repo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTrackedFilesAreSmall: a program that was built beside its source is easily committed, and every clone keeps it.
func TestTrackedFilesAreSmall(t *testing.T) {
	const most = 256 << 10
	list := exec.Command("git", "ls-files", "-z")
	list.Dir = root(t)
	out, err := list.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", describe(err))
	}
	files := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	for _, name := range files {
		if info, err := os.Lstat(filepath.Join(list.Dir, name)); err == nil && info.Size() > most {
			t.Errorf("%s has %d bytes, want at most %d", name, info.Size(), most)
		}
	}
	if len(files) < 100 {
		t.Errorf("git knows %d files", len(files))
	}
}
