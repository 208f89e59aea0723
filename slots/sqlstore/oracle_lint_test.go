package sqlstore

import (
	"regexp"
	"testing"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/test/oracletest"
)

// The package has what both databases understand.
func TestOraclePackagePortable(t *testing.T) {
	for _, text := range oraclePackage(t) {
		if found := oracletest.NotPortable(text); len(found) > 0 {
			t.Errorf("%.40s… has %s", text, found)
		}
	}
}

// oraclePackage is the package's specification and body.
func oraclePackage(t *testing.T) []string {
	t.Helper()
	var parts []string
	for _, s := range scriptsOf(t, sqldb.Oracle) {
		for _, text := range s.statements("") {
			if regexp.MustCompile(`^CREATE OR REPLACE PACKAGE `).MatchString(oracletest.Uncommented(text)) {
				parts = append(parts, text)
			}
		}
	}
	if len(parts) != 2 {
		t.Fatalf("there are %d parts of the package: want 2", len(parts))
	}
	return parts
}

func TestOracleLint(t *testing.T) {
	for _, c := range oracleTexts(t) {
		for _, problem := range oracletest.Lint(c.text) {
			t.Errorf("%s: %s\n%s", c.name, problem, c.text)
		}
	}
}
