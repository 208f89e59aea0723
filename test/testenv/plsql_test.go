package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const plsqlPackage = `CREATE OR REPLACE PACKAGE BODY API IS
  PROCEDURE CLAIM(p_n IN T.N%TYPE, p_out OUT NUMBER) IS
    v NUMBER(1);
  BEGIN
    SELECT N INTO v FROM T WHERE N = p_n FOR UPDATE SKIP LOCKED; -- one row
    IF v = 1 THEN
      p_out := 1;
    END IF;
  EXCEPTION WHEN NO_DATA_FOUND THEN p_out := 0;
  END CLAIM;
END API;`

func TestPLSQLErrors(t *testing.T) {
	t.Parallel()
	// One run of the parser, which takes seconds to begin, has all texts.
	got := PLSQLErrors(t, []PLSQLText{
		{"good package", plsqlPackage},
		{"good script", plsqlPackage + "\n/\nCREATE TABLE T (N NUMBER(19) PRIMARY KEY);\n"},
		{"good statement", "SELECT '--' FROM DUAL -- without an end"},
		{"good end", "SELECT '--' FROM DUAL;"},
		{"good merge",
			"MERGE INTO t USING (SELECT :1 a FROM DUAL) s ON (t.a = s.a) WHEN NOT MATCHED THEN INSERT (a) VALUES (s.a)"},
		{"endif", strings.Replace(plsqlPackage, "    END IF;\n", "", 1)},
		{"limit", "SELECT 1 FROM t LIMIT 1"},
		{"conflict", "INSERT INTO t (a) VALUES (1)\nON CONFLICT DO NOTHING"},
		{"good package, after a bad one", plsqlPackage},
		{"cast", "SELECT a::int FROM t"},
	}...)
	for _, where := range []string{"endif:8:2 ", "limit:1:22 ", "conflict:2:", "cast:1:8 "} {
		if !slices.ContainsFunc(got, func(e string) bool { return strings.HasPrefix(e, where) }) {
			t.Errorf("there is no error at %s in %q", where, got)
		}
	}
	for _, e := range got {
		if strings.HasPrefix(e, "good ") || len(e) > 300 {
			t.Errorf("an error is not right, or not for people: %s", e)
		}
	}
}

// The program itself reads files, and reports what is wrong by its exit status.
func TestPLSQLCheck(t *testing.T) {
	t.Parallel()
	path := UseClient(t, PLSQLGrammar)
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	good, bad := write("good.sql", "SELECT 1 FROM DUAL;"), write("bad.sql", "SELECT FROM")
	for _, c := range []struct {
		args   []string
		stdin  string
		status int
		want   string
	}{
		{args: []string{good, bad}, status: 1, want: bad + ":1:"},
		{args: []string{filepath.Join(dir, "none")}, status: 2, want: "none"},
		{stdin: "{}", status: 2, want: "JSON list"},
	} {
		cmd := exec.Command(path, c.args...)
		cmd.Stdin = strings.NewReader(c.stdin)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != c.status || !strings.Contains(string(out), c.want) {
			t.Errorf("%q exits with %d, want %d: %.300s", c.args, got, c.status, out)
		}
	}
}
