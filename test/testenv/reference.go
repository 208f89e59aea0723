package testenv

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// referenceModule is the module of envoyproxy/ratelimit.
const referenceModule = "github.com/envoyproxy/ratelimit"

// A ReferenceTests is what runs the integration tests of envoyproxy/ratelimit against headgate.
type ReferenceTests struct {
	Program string // the tests, which start headgate in place of the reference
	Files   string // the directory with what they read, relative to which they name it
	Commit  string // of the reference
}

// BuildReferenceTests returns the integration tests of envoyproxy/ratelimit, of the version in tools/reference, with
// the package there that has them start headgate. They come from the module proxy, are built once, and kept where
// set-up installs. Where there are to be no servers, the test is skipped.
func BuildReferenceTests(tb TB, root string) ReferenceTests {
	tb.Helper()
	if os.Getenv(EnvServers) == NoServers {
		Require(tb, Reference)
	}
	tests, err := buildReference(filepath.Join(root, "tools", "reference"))
	if err != nil {
		tb.Fatalf("testenv: build the tests of envoyproxy/ratelimit: %v", err)
	}
	tests.Program = Require(tb, Reference)
	ran(tb, Reference, tests.Commit)
	return tests
}

// buildReference builds the tests, unless those that are installed are of the same sources.
func buildReference(source string) (ReferenceTests, error) {
	install, err := installDir()
	if err != nil {
		return ReferenceTests{}, err
	}
	version, err := goIn(source, "list", "-m", "-f", "{{.Version}}", referenceModule)
	if err != nil {
		return ReferenceTests{}, err
	}
	dir := filepath.Join(install, "reference")
	tests := ReferenceTests{Files: filepath.Join(dir, "files"), Commit: version[strings.LastIndex(version, "-")+1:]}
	key, err := referenceKey(source)
	if err != nil {
		return tests, err
	}
	if text, err := os.ReadFile(filepath.Join(dir, "key")); err == nil && string(text) == key {
		return tests, nil
	}
	if err := os.MkdirAll(install, 0o755); err != nil {
		return tests, err
	}
	fresh, err := os.MkdirTemp(install, "reference-")
	if err != nil {
		return tests, err
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	if err := linkReference(source, fresh); err != nil {
		return tests, err
	}
	if err := os.WriteFile(filepath.Join(fresh, "key"), []byte(key), 0o644); err != nil {
		return tests, err
	}
	if err := os.RemoveAll(dir); err != nil {
		return tests, err
	}
	return tests, os.Rename(fresh, dir)
}

// referenceKey changes with what the tests are made of.
func referenceKey(source string) (string, error) {
	sum := sha256.New()
	compiler, err := goIn(source, "env", "GOVERSION")
	if err != nil {
		return "", err
	}
	fmt.Fprintln(sum, compiler)
	for _, name := range []string{"go.mod", "go.sum", "runner/runner.go"} {
		text, err := os.ReadFile(filepath.Join(source, filepath.FromSlash(name)))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", name, len(text), text)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// linkReference builds the tests into a directory, from a copy of the module in which one package is ours.
func linkReference(source, to string) error {
	if _, err := goIn(source, "mod", "download", referenceModule); err != nil {
		return err
	}
	module, err := goIn(source, "list", "-m", "-f", "{{.Dir}}", referenceModule)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "headgate-reference")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	sources := filepath.Join(dir, "module")
	if err := copyWritable(sources, module); err != nil {
		return err
	}
	replace := fmt.Sprintf("\nreplace %s => %s\n", referenceModule, sources)
	for _, c := range []struct{ from, to, more string }{
		{"runner/runner.go", "module/src/service_cmd/runner/runner.go", ""},
		{"go.mod", "go.mod", replace}, {"go.sum", "go.sum", ""},
	} {
		text, err := os.ReadFile(filepath.Join(source, filepath.FromSlash(c.from)))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(c.to)), append(text, c.more...), 0o644); err != nil {
			return err
		}
	}
	if _, err := goIn(source, "test", "-c", "-trimpath", "-vet=off", "-tags", "integration", "-modfile",
		filepath.Join(dir, "go.mod"), "-o", filepath.Join(to, "integration.test"),
		referenceModule+"/test/integration"); err != nil {
		return err
	}
	return copyWritable(filepath.Join(to, "files", "runtime"), filepath.Join(module, "test", "integration", "runtime"))
}

// copyWritable copies a directory of the module cache, whose files cannot be written.
func copyWritable(to, from string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chmod(path, 0o755)
	})
}

// goIn runs go in a directory, as it builds headgate, and returns what it prints.
func goIn(dir string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly")
	out, err := output(cmd)
	return strings.TrimSpace(string(out)), err
}
