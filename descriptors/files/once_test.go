package files

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

func rulesFile(t *testing.T, text string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{file}
}

func TestLoadReturnsTheSetAndItsSources(t *testing.T) {
	paths := rulesFile(t, "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: day, requests_per_unit: 1}}\n")
	set, spec, err := Load(paths, rulefile.Options{})
	if err != nil || len(set.Rules()) != 1 || len(spec.Domains) != 1 || spec.Domains[0].Place.File != paths[0] {
		t.Errorf("%v %v %v", set, spec, err)
	}
	if _, _, err := Load([]string{"none"}, rulefile.Options{}); err == nil {
		t.Error("a file that is not there is loaded")
	}
}

func TestLoadListsEveryProblem(t *testing.T) {
	_, _, err := Load(rulesFile(t, "domain: d\ndescriptors:\n- {key: k, rate_limt: {}}\n- {value: v}\n"),
		rulefile.Options{})
	if err == nil || !strings.Contains(err.Error(), ":3:") || !strings.Contains(err.Error(), ":4:") {
		t.Errorf("got %v, want a problem of each line", err)
	}
}

// TestWarningsDoNotFloodTheLog: rules are read again whenever they change, and may have a warning each.
func TestWarningsDoNotFloodTheLog(t *testing.T) {
	var log strings.Builder
	warnings := make([]descriptors.Problem, 50)
	for i := range warnings {
		warnings[i] = descriptors.Problem{File: "a.yaml", Line: i + 1, Warning: true, Message: "strange"}
	}
	LogWarnings(slog.New(slog.NewTextHandler(&log, nil)), warnings)
	if n := strings.Count(log.String(), "warning about the rules"); n != 20 ||
		!strings.Contains(log.String(), "a.yaml:20") || !strings.Contains(log.String(), "further=30\n") {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
	log.Reset()
	LogWarnings(slog.New(slog.NewTextHandler(&log, nil)), warnings[:20])
	if strings.Contains(log.String(), "further") || strings.Count(log.String(), "\n") != 20 {
		t.Error(log.String())
	}
}
