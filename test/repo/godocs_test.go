package repo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGoInDocumentsCompiles: programs in documents are programs.
func TestGoInDocumentsCompiles(t *testing.T) {
	found := 0
	for _, file := range documents(t) {
		for _, b := range blocks(t, file) {
			if b.lang != "go" || !strings.HasPrefix(b.text, "package main") {
				continue
			}
			found++
			source := filepath.Join(t.TempDir(), "main.go")
			if err := os.WriteFile(source, []byte(b.text), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("go", "vet", source)
			cmd.Dir = root(t)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s:%d: %v\n%s", b.file, b.line, err, out)
			}
		}
	}
	if found < 2 {
		t.Errorf("%d programs were found, want those of README.md and docs/library.md", found)
	}
}

// TestRouterExamplesPass runs the examples of other routers, which have a module of their own.
func TestRouterExamplesPass(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it builds three routers")
	}
	dir := filepath.Join(root(t), "examples", "routers")
	if out, err := exec.Command("go", "-C", dir, "mod", "download").CombinedOutput(); err != nil {
		t.Skipf("the routers cannot be downloaded: %v\n%s", err, out)
	}
	if out, err := exec.Command("go", "-C", dir, "test", "./...").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
