package descriptors_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// mustLoad compiles one file of rules, which may have warnings.
func mustLoad(t testing.TB, rules string) *descriptors.Set {
	t.Helper()
	set, problems := rulefile.Load([]rulefile.Source{{Name: "rules.yaml", Data: []byte(rules)}}, rulefile.Options{})
	if set == nil {
		t.Fatalf("rules are refused: %v", problems)
	}
	return set
}

func lines(problems []descriptors.Problem) string {
	var b strings.Builder
	for _, p := range problems {
		fmt.Fprintln(&b, p)
	}
	return b.String()
}

func checkGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\ngot\n%swant\n%s", file, got, want)
	}
}
