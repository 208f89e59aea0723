package testenv

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// FormerHeadgate returns the program headgate of a commit of the repository at root. It is built once, from the
// repository's own history, and kept where set-up installs. If the commit or its modules are missing, as in a
// shallow clone, the test is skipped like one whose server is missing.
func FormerHeadgate(tb TB, root, commit string) string {
	tb.Helper()
	if os.Getenv(EnvServers) != NoServers {
		if err := buildFormer(root, commit); err != nil {
			tb.Logf("not run: cannot build the former commit %.12s: %v", commit, err)
		}
	}
	return UseClient(tb, Former)
}

// buildFormer builds the program if it does not exist. If it fails, it leaves no program.
func buildFormer(root, commit string) error {
	e, err := engineNamed(Former)
	if err != nil {
		return err
	}
	dir, err := installDir()
	if err != nil {
		return err
	}
	program := filepath.Join(dir, filepath.FromSlash(e.installed))
	of := program + ".commit"
	if text, err := os.ReadFile(of); err == nil && string(text) == commit {
		if _, err := os.Stat(program); err == nil {
			return nil
		}
	}
	_ = os.Remove(of)
	_ = os.Remove(program)
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		return err
	}
	sources, err := os.MkdirTemp("", "headgate-former")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(sources) }()
	// In a container the sources may be another user's.
	archive, err := output(exec.Command("git", "-c", "safe.directory=*", "-C", root, "archive", "--format=tar", commit))
	if err != nil {
		return err
	}
	unpack := exec.Command("tar", "-x", "-C", sources)
	unpack.Stdin = bytes.NewReader(archive)
	if _, err := output(unpack); err != nil {
		return err
	}
	fresh := fmt.Sprint(program, ".", os.Getpid())
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-X main.version=former-"+commit[:12], "-o", fresh,
		"./cmd/headgate")
	build.Dir = sources
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly")
	if _, err := output(build); err != nil {
		return err
	}
	if err := os.Rename(fresh, program); err != nil {
		return err
	}
	return os.WriteFile(of, []byte(commit), 0o644)
}

// output runs a command, and returns what it prints. Its error has the end of what the command says.
func output(cmd *exec.Cmd) ([]byte, error) {
	var wrong strings.Builder
	cmd.Stderr = &wrong
	out, err := cmd.Output()
	if err != nil {
		text := strings.TrimSpace(wrong.String())
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args[:2], " "), err, text[max(0, len(text)-500):])
	}
	return out, nil
}
