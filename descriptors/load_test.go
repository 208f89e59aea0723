package descriptors_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

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

// loadOne compiles one file of rules, and returns what is wrong with it.
func loadOne(rules string) (*descriptors.Set, []descriptors.Problem) {
	return rulefile.Load([]rulefile.Source{{Name: "rules.yaml", Data: []byte(rules)}}, rulefile.Options{})
}
