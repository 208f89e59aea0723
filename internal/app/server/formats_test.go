package server

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/stack"
	"github.com/headgate-rls/headgate/test/testenv"
)

// TestLaterVersionAtTheStart: a replica that finds at its start that a later version counts in its store is not ready,
// says why, and becomes ready once that is over. One that was ready before stays so.
func TestLaterVersionAtTheStart(t *testing.T) {
	url := testenv.StartRedis(t).URL()
	store, err := stack.New(t.Context(), url, stack.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ready := func(r interface {
		Get(addr, path string) (int, string)
	}, addr string, code int, want string) {
		t.Helper()
		testenv.Eventually(t, 3*formatCheck, "/readyz says "+want, func() string {
			if got, body := r.Get(addr, "/readyz?verbose"); got != code || !strings.Contains(body, want) {
				return fmt.Sprint(got, " ", body)
			}
			return ""
		})
	}
	old := startServe(t, "--backend", url)
	ready(old, old.HTTP, 200, "formats: ok")
	later := strconv.Itoa(backends.Formats + 1)
	row := backends.Row{Key: later, Value: "v9.8.7"}
	if _, err := store.Registry.Put(t.Context(), formatsTable, []backends.Row{row}, time.Hour); err != nil {
		t.Fatal(err)
	}
	token := []string{"--backend", url, "--admin-token", adminToken}
	r := startServe(t, token...)
	ready(r, r.HTTP, 503, `formats: headgate "v9.8.7" has counted here in the last 24h0m0s, in formats `+later)
	if _, body := askAdmin(r, "GET", "/admin/status", ""); !strings.Contains(body, "NOT_READY") ||
		!strings.Contains(body, "v9.8.7") {
		t.Errorf("/admin/status: %s", body)
	}
	if n := strings.Count(r.Log.String(), "a later version of headgate counts in this store"); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
	by := startServe(t, append(token, "--on-later-format", "on_backend_error")...)
	ready(by, by.HTTP, 200, "v9.8.7")
	ready(old, old.HTTP, 200, "formats: ok")
	if err := store.Registry.Drop(t.Context(), formatsTable, []string{later}); err != nil {
		t.Fatal(err)
	}
	ready(r, r.HTTP, 200, "formats: ok")
}

// TestFormatsOfOwnVersion: rows of this version and of former ones, and what is no number, are in nobody's way.
func TestFormatsOfOwnVersion(t *testing.T) {
	var rows []backends.Row
	for _, key := range []string{"0", "-1", strconv.Itoa(backends.Formats), "\x80", "", "v2", "99999999999999999999"} {
		rows = append(rows, backends.Row{Key: key, Value: "v1"})
	}
	if later := laterOf(rows); later != "" {
		t.Error(later)
	}
}
