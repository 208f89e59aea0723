package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A program that is up to date is not linked again, and one whose sources changed is.
func TestBuildKeepsPrograms(t *testing.T) {
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOCACHE", strings.TrimSpace(string(cache)))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	root := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module small\n")
	kept := keptBuild(filepath.Base(root), nil)
	build := func(want string) os.FileInfo {
		t.Helper()
		program, err := Build(root, t.TempDir(), root)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(program).CombinedOutput(); err != nil || string(out) != want {
			t.Fatalf("the program says %q, %v; want %q", out, err, want)
		}
		info, err := os.Stat(kept)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	say := func(word string) { write("main.go", "package main\n\nfunc main() { println(\""+word+"\") }\n") }
	say("one")
	first := build("one\n")
	if second := build("one\n"); !os.SameFile(first, second) {
		t.Error("what was up to date was linked again")
	}
	say("two")
	if third := build("two\n"); os.SameFile(first, third) {
		t.Error("the new program is not kept")
	}
}
