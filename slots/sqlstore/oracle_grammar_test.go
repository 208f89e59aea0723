package sqlstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/oracletest"
	"github.com/headgate-rls/headgate/test/random"
)

// oracleTexts is every text that Oracle is sent: those that the fake noted, among
// them all migrations, and those of the set-up script.
func oracleTexts(t *testing.T) []struct{ name, text string } {
	t.Helper()
	var all []struct{ name, text string }
	seen := map[string]bool{}
	add := func(name, text string) {
		if !seen[text] {
			seen[text] = true
			all = append(all, struct{ name, text string }{name, text})
		}
	}
	for i, c := range sent(t) {
		add(fmt.Sprintf("sent-%d", i), c.Text)
	}
	f := migrating(flywayWasHere)
	_, err := oracleStore(t, f).Migrate(t.Context())
	check(t, err)
	for i, text := range f.Texts() {
		if !strings.HasPrefix(text, "(") {
			add(fmt.Sprintf("flyway-%d", i), text)
		}
	}
	for i, text := range oracleDrops {
		add(fmt.Sprintf("drop-%d", i), text)
	}
	for i, text := range setupStatements(t) {
		add(fmt.Sprintf("setup-%d", i), text)
	}
	return all
}

// The grammar of PL/SQL accepts all of it.
func TestOracleGrammar(t *testing.T) {
	t.Parallel()
	var list []oracletest.Text
	for _, c := range oracleTexts(t) {
		list = append(list, oracletest.Text{Name: c.name, Text: c.text})
	}
	if len(list) < 60 {
		t.Errorf("only %d texts are checked", len(list))
	}
	if found := oracletest.Grammar(t, list); found != "" {
		t.Errorf("the grammar refuses:\n%s", found)
	}
}

// The grammar must bite.
func TestOracleGrammarBites(t *testing.T) {
	if !random.Long() {
		t.Skip("only in the long form: the grammar is of a fixed version")
	}
	body := oraclePackage(t)[1]
	wrong := []string{
		"INSERT INTO RL_WNDW_CT (SLOT_CT) VALUES (1) ON CONFLICT DO NOTHING",
		"SELECT SLOT_CT FROM RL_WNDW_CT WHERE SLOT_CT = 1 LIMIT 1",
		"SELECT `SLOT_CT` FROM RL_WNDW_CT",
		"SELECT SLOT_CT::int FROM RL_WNDW_CT",
		"INSERT INTO RL_WNDW_CT (SLOT_CT) VALUES (1), (2)",
		"SELECT FROM WHERE",
		"UPDATE RL_WNDW_CT SET SLOT_CT + 1 WHERE SLOT_CT = 2",
		"BEGIN IF 1 = 1 THEN NULL; END;",
		"CREATE TABLE T (A NUMBER(10) NOT NULL,)",
		"ALTER TABLE T ADD COLUMN (A NUMBER",
		"BEGIN RL_SLOT_API.ASSIGN_SLOT(:1, :2; END;",
		strings.Replace(body, "END IF;", "", 1),
		"CREATE OR REPLACE FUNCTION F RETURN NUMBER IS BEGIN WHILE 1 = 1 LOOP NULL; END WHILE; END F;",
		"CREATE OR REPLACE PROCEDURE P IS BEGIN NULL; EXCEPTION NO_DATA_FOUND THEN NULL; END P;",
	}
	var list []oracletest.Text
	for i, text := range wrong {
		list = append(list, oracletest.Text{Name: fmt.Sprintf("wrong-%d", i), Text: text})
	}
	found := oracletest.Grammar(t, list)
	for _, c := range list {
		if !strings.Contains(found, c.Name+":") {
			t.Errorf("the grammar accepts %.120s", c.Text)
		}
	}
}
