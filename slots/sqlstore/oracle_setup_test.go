package sqlstore

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const oracleExample = "../../examples/oracle"

var sqlPlusCommand = regexp.MustCompile(`(?m)^(SET |WHENEVER |EXIT).*\n`)

// setupStatements is the SQL of the example, without commands of SQL*Plus.
func setupStatements(t *testing.T) (all []string) {
	t.Helper()
	for _, name := range []string{"ready.sql", "create-user.sql"} {
		text, err := os.ReadFile(filepath.Join(oracleExample, name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, scriptFile{name: name, text: sqlPlusCommand.ReplaceAllString(string(text), "")}.statements("")...)
	}
	if len(all) < 5 {
		t.Fatalf("the example has %d statements: want 5 or more", len(all))
	}
	return all
}

// The service, its image, and a volume that has a name.
func TestOracleCompose(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(oracleExample, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Image       string
			Environment map[string]string
			Ports       []string
			Volumes     []string
		}
		Volumes map[string]any
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	oracle, ok := file.Services["oracle"]
	if !ok {
		t.Fatal("there is no service oracle")
	}
	if want := "${ORACLE_IMAGE:-codeassertion/oracledb-arm64-standalone:19.3.0-enterprise}"; oracle.Image != want {
		t.Errorf("image %s, want %s", oracle.Image, want)
	}
	if oracle.Environment["ORACLE_PDB"] != "ORCLPDB1" {
		t.Errorf("environment %v: want ORCLPDB1", oracle.Environment)
	}
	if len(oracle.Ports) != 1 || !strings.HasSuffix(oracle.Ports[0], ":1521:1521") {
		t.Errorf("ports %v: want 1521", oracle.Ports)
	}
	if len(oracle.Volumes) != 1 {
		t.Fatalf("volumes %v: want one", oracle.Volumes)
	}
	name, _, _ := strings.Cut(oracle.Volumes[0], ":")
	if _, ok := file.Volumes[name]; !ok {
		t.Errorf("volume %s is not one of %v", name, file.Volumes)
	}
}

// fakeDocker is a fake: it notes what the script asks of Docker and lets the
// database be ready, or not.
const fakeDocker = `#!/bin/bash
echo "docker $*" >>"$FAKE_LOG"
case "$*" in
*" exec "*)
  input=$(cat)
  echo "$input" >>"$FAKE_LOG"
  case "$input" in
  *OPEN_MODE*) echo "$FAKE_STATE" ;;
  *"CREATE USER"*) [ -z "$FAKE_REFUSES" ] || { echo "ORA-01031: insufficient privileges"; exit 1; } ;;
  esac ;;
*" logs "*) echo "the log's end" ;;
esac
`

// runSetup runs the script with the fake and returns what it says, what it asked
// of Docker, and how it ended.
func runSetup(t *testing.T, env ...string) (says, asked string, code int) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte(fakeDocker), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", filepath.Join(oracleExample, "setup-oracle.sh"))
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "FAKE_LOG="+log)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	noted, err := os.ReadFile(log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(out), string(noted), cmd.ProcessState.ExitCode()
}

// The script starts the service, waits, creates the user and says how to
// connect.
func TestOracleSetup(t *testing.T) {
	t.Parallel()
	says, asked, code := runSetup(t, "FAKE_STATE=ORCLPDB1 IS READ WRITE")
	if code != 0 || !strings.Contains(says, "jdbc:oracle:thin:@localhost:1521/ORCLPDB1") {
		t.Errorf("ended with %d and said %s", code, says)
	}
	at := 0
	for _, step := range []string{"docker compose up -d oracle", "OPEN_MODE", "CREATE USER",
		"GRANT CREATE SESSION, CREATE TABLE, CREATE PROCEDURE", "QUOTA"} {
		i := strings.Index(asked[at:], step)
		if i < 0 {
			t.Fatalf("no %s where it should be in\n%s", step, asked)
		}
		at += i
	}
}

// The wait has a bound, and failures are reported.
func TestOracleSetupFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, says string
		code       int
		env        []string
	}{
		{"never open", "ORCLPDB1 is not open after", 1, []string{"FAKE_STATE=ORCLPDB1 IS MOUNTED", "WAIT_SECONDS=1"}},
		{"refused", "ORA-01031", 1, []string{"FAKE_STATE=ORCLPDB1 IS READ WRITE", "FAKE_REFUSES=1"}},
		{"no number", "WAIT_SECONDS is 'soon'", 2, []string{"WAIT_SECONDS=soon"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			says, _, code := runSetup(t, c.env...)
			if code != c.code || !strings.Contains(says, c.says) {
				t.Errorf("ended with %d, want %d, and said %s", code, c.code, says)
			}
		})
	}
}
