package repo

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestREADMEsProgramLimits: the README's Go program with the README's rules refuses what the rules refuse. Its
// counters are in memory here, and its port is free.
func TestREADMEsProgramLimits(t *testing.T) {
	dir := t.TempDir()
	port := testenv.FreePort(t)
	var rules, program string
	for _, b := range blocks(t, filepath.Join(root(t), "README.md")) {
		switch {
		case b.lang == "yaml" && strings.HasPrefix(b.text, "domain: shop"):
			rules = b.text
		case b.lang == "go":
			program = b.text
		}
	}
	program = strings.NewReplacer("redis://localhost:6379", "memory://", ":8000", fmt.Sprintf("127.0.0.1:%d", port)).
		Replace(program)
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "main")
	put := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(dir, "rules", "shop.yaml"), rules)
	put(source, program)
	cmd := exec.Command("go", "build", "-o", binary, source)
	cmd.Dir = root(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd = exec.Command(binary)
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	status := func() int {
		req, err := http.NewRequest("GET", fmt.Sprintf("http://127.0.0.1:%d/main.go", port), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Tenant", "acme")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	passed, refused := 0, 0
	testenv.Eventually(t, 20*time.Second, "serve", func() string {
		if status() != 200 {
			return "no answer"
		}
		passed++
		return ""
	})
	for range 729 {
		if status() == 429 {
			refused++
		} else {
			passed++
		}
	}
	if passed != 600 || refused != 130 {
		t.Errorf("%d requests pass and %d are refused, want 600 and 130", passed, refused)
	}
}
