package slotstest

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/dbtest"
	"github.com/headgate-rls/headgate/test/testenv"
)

// envZoned is set in the process that TestSuitePassesInNewYork starts.
const envZoned = "HEADGATE_SLOTS_ZONED"

// zonedChecks are those in which an instant could move by a zone.
var zonedChecks = []string{
	"Provision", "ProvisionSeeds", "Frontier", "Lock", "Claim", "Find", "Scout", "Scripts", "ScriptsBefore1970",
	"Times", "Sizes", "Raise", "Configs", "Since", "Windows", "Lead", "Purge", "Drift",
}

// TestSuitePassesInNewYork runs the suite in a process whose local time is New York's.
func TestSuitePassesInNewYork(t *testing.T) {
	if os.Getenv(envZoned) != "" {
		t.Skip("is running")
	}
	t.Parallel()
	cmd := exec.CommandContext(limited(t), os.Args[0], "-test.run=^TestStoresPassInAnotherZone$", "-test.v")
	cmd.Env = append(os.Environ(), envZoned+"=1", "TZ=America/New_York")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestStoresPassInAnotherZone is the part of that process. The databases' sessions keep
// another time than UTC, too.
func TestStoresPassInAnotherZone(t *testing.T) {
	if os.Getenv(envZoned) == "" {
		t.Skip("TestSuitePassesInNewYork runs it")
	}
	if _, offset := day.In(time.Local).Zone(); offset == 0 {
		t.Fatal("the local time is UTC")
	}
	harnesses := map[string]func(*testing.T) Harness{"sqlite": sqliteHarness}
	for _, engine := range dbtest.Engines() {
		harnesses[engine] = zonedHarness(engine, map[string]string{testenv.Postgres: "timezone = 'Asia/Kathmandu'",
			testenv.MariaDB: "--default-time-zone=+05:45", testenv.MySQL: "--default-time-zone=+05:45"}[engine])
	}
	for name, harness := range harnesses {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait for servers to be set up
			h := harness(t)
			h.Checks = zonedChecks
			Run(t, h)
		})
	}
}

// zonedHarness is that of a server whose sessions keep another time.
func zonedHarness(engine, zone string) func(*testing.T) Harness {
	return func(t *testing.T) Harness {
		server := testenv.StartDatabase(t, engine, testenv.WithSettings(zone))
		return serverHarness(t, engine, func(*testing.T) *testenv.Database { return server })
	}
}
