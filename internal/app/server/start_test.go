package server

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// headgate does not start if the store rejects it and retrying does not help: the failure policy would
// decide every request.
func TestStartIsRefusedByTheStore(t *testing.T) {
	wrong := func(url string) string {
		return strings.Replace(url, ":"+testenv.DatabasePassword+"@", ":wrong@", 1)
	}
	for _, engine := range []string{testenv.Postgres, testenv.MariaDB} {
		db := testenv.SharedDatabase(t, engine)
		empty := db.CreateDatabase("empty")
		for _, c := range []struct{ name, url, want string }{
			{"a wrong password", wrong(empty), "--backend: "},
			{"no such database", db.URLOf("nowhere"), "nowhere"},
		} {
			for _, migrate := range []string{"true", "false"} {
				began := time.Now()
				text := startError(t, "--example", "--backend", c.url, "--backend-migrate="+migrate)
				if !strings.Contains(text, c.want) || !strings.Contains(text, "--backend: ") || strings.Contains(text, "wrong@") {
					t.Errorf("%s, %s: %s", engine, c.name, text)
				}
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("%s, %s: refused after %v", engine, c.name, took)
				}
			}
		}
		if text := startError(t, "--example", "--backend", empty, "--backend-migrate=false"); !strings.Contains(text,
			"headgate migrate") {
			t.Errorf("%s, no tables: %s", engine, text)
		}
	}
	redis := testenv.StartRedis(t, testenv.WithACL("user default on >right ~* &* +@all",
		"user app on >apppw ~hg:* +ping +hello"))
	for name, url := range map[string]string{
		"no password": redis.URLFor("", ""), "a wrong password": redis.URLFor("", "wrong"),
		"no such user": redis.URLFor("nobody", "right"), "no rights": redis.URLFor("app", "apppw"),
		"no Cluster":       strings.Replace(redis.URLFor("", "right"), "redis://", "redis+cluster://", 1),
		"no such database": strings.TrimSuffix(redis.URLFor("", "right"), "/0") + "/99",
	} {
		if text := startError(t, "--example", "--backend", url); !strings.Contains(text, "--backend: redis: ") {
			t.Errorf("redis, %s: %s", name, text)
		}
	}
}

// headgate starts, and soon, if the store cannot be reached or does not answer: a sidecar may start
// before the database.
func TestStartWithoutTheStore(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	for _, addr := range []string{silent.Addr().String(), closed.Addr().String()} {
		for _, url := range []string{"postgres://app:pw@" + addr + "/limits", "mysql://app:pw@" + addr + "/limits",
			"redis://" + addr} {
			t.Run(url, func(t *testing.T) {
				t.Parallel()
				began := time.Now()
				r := startServe(t, "--example", "--backend", url, "--backend-migrate=false")
				if took := time.Since(began); took > 15*time.Second {
					t.Errorf("the start took %v", took)
				}
				testenv.Eventually(t, 10*time.Second, "not be ready", func() string {
					if code, _ := r.Get(r.HTTP, "/readyz"); code != 503 {
						return "ready"
					}
					return ""
				})
			})
		}
	}
}
