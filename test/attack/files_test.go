package attack

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestConnectionsLeaveFilesForOthers: clients open more connections than headgate may have files. A new client is
// still answered, the store is still dialed, so that limits hold, and rules are still read.
func TestConnectionsLeaveFilesForOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs headgate for some seconds")
	}
	dir := t.TempDir()
	file, script := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "with-few-files")
	for name, text := range map[string]string{
		file:   troubleRules,
		script: fmt.Sprintf("#!/bin/sh\nulimit -n 256 && exec %s \"$@\"\n", program),
	} {
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	store := testenv.StartProxy(t, testenv.StartRedis(t).Addr)
	hg := testenv.ServeHeadgate(t, script, "--rules", file, "--backend", "redis://"+store.Addr, "--drain-timeout", "1s")
	for _, address := range []string{hg.GRPC, hg.HTTP, hg.Services, hg.Debug} {
		for range 300 {
			nc, err := net.DialTimeout("tcp", address, time.Second)
			if err != nil {
				continue
			}
			t.Cleanup(func() { nc.Close() })
		}
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", hg.PID()))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d files are open", len(files))
	store.Cut()
	c := newCaller(t, hg)
	testenv.Eventually(t, 10*time.Second, "have a new client's call counted", func() string {
		*c = caller{client: c.client}
		c.ask("free", "a")
		if c.admitted != 1 || c.uncounted > 0 {
			return fmt.Sprintf("%+v", *c)
		}
		return ""
	})
	*c = caller{client: c.client}
	for range 20 {
		c.ask("few", "a")
	}
	if c.admitted != 3 || c.refused < 10 || c.uncounted > 0 {
		t.Errorf("%+v, want 3 of 20 calls admitted, and all counted", *c)
	}
	more := strings.Replace(troubleRules, "requests_per_unit: 3", "requests_per_unit: 5", 1)
	if err := os.WriteFile(file, []byte(more), 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, 10*time.Second, "have headgate read its rules", func() string {
		c.ask("few", "a")
		if c.admitted < 5 {
			return fmt.Sprintf("%d calls are admitted", c.admitted)
		}
		return ""
	})
	if limit, err := hg.Metrics("headgate_open_files_limit"); err != nil || limit[0] != 256 {
		t.Errorf("headgate_open_files_limit is %v, %v", limit, err)
	}
	if !strings.Contains(hg.Log(), `msg="few files can be open`) {
		t.Errorf("the log: %s", hg.Log())
	}
}
