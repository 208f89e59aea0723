package testenv

import (
	"os"
	"path/filepath"
	"testing"
)

// The second server's data directory is a copy of the first one's, as it was before the first server started.
func TestNewDataIsKept(t *testing.T) {
	Require(t, Postgres)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	first := StartDatabase(t, Postgres, WithSettings("timezone='America/New_York'"))
	first.Exec("CREATE TABLE t (n INT);")
	kept, err := filepath.Glob(filepath.Join(cache, "headgate-testenv", "data", Postgres+"-*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept are %q (%v), want one directory", kept, err)
	}
	if err := os.WriteFile(filepath.Join(kept[0], "marker"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second := StartDatabase(t, Postgres)
	if _, err := os.Stat(filepath.Join(second.server.dir, "data", "marker")); err != nil {
		t.Errorf("the second server's data is no copy: %v", err)
	}
	if zone := second.Exec("SHOW timezone;"); zone != "UTC" {
		t.Errorf("the second server has the first one's settings: its time zone is %s", zone)
	}
	if tables := second.Exec("SELECT COUNT(*) FROM pg_tables WHERE tablename = 't';"); tables != "0" {
		t.Errorf("the second server has %s tables of the first one", tables)
	}
}
