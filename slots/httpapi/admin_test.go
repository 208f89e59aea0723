package httpapi

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

const configPath = "/admin/rate-limit/config"

// TestAdminSetsConfigsAndFlushes: configs are set and read, and the cache is flushed.
func TestAdminSetsConfigsAndFlushes(t *testing.T) {
	s := real(t)
	s.admin(t, "GET", configPath, "").Is(t, 404).Says(t, "no active config")
	v := s.admin(t, "POST", configPath, `{"configName":"default","maxPerWindow":100,"windowSize":"PT4S"}`).Is(t,
		200).Object(t)
	keys(t, v, "configId", "configName", "maxPerWindow", "windowSize", "effectiveFrom", "active")
	if v["configName"] != "default" || v["maxPerWindow"] != 100.0 || v["windowSize"] != "PT4S" || v["active"] != true ||
		v["configId"] == "" {
		t.Errorf("the config is %v", v)
	}
	if _, err := time.Parse(microForm, v["effectiveFrom"].(string)); err != nil {
		t.Error(err)
	}
	for _, target := range []string{configPath, configPath + "?name=default"} {
		if got := s.admin(t, "GET", target, "").Is(t, 200).Object(t); got["configId"] != v["configId"] {
			t.Errorf("%s: %v, want %v", target, got, v)
		}
	}
	s.admin(t, "GET", configPath+"?name=nowhere", "").Is(t, 404)
	s.admin(t, "GET", configPath+"?name="+strings.Repeat("n", 129), "").Is(t, 400).Says(t, "name has 129 bytes")

	second := s.admin(t, "POST", configPath,
		`{"configName":"default","maxPerWindow":200,"windowSize":"P0DT60M","scope":"shared","jitter":"stratified",
		"calendar":{"zone":"Europe/Berlin","open":["MON-fri 09:00-17:00"],"closed":["2026-12-25"]}}`).Is(t, 200).Object(t)
	keys(t, second, "configId", "configName", "maxPerWindow", "windowSize", "effectiveFrom", "active", "scope",
		"jitter", "calendar")
	if second["configId"] == v["configId"] || second["windowSize"] != "PT1H" || second["scope"] != "shared" ||
		second["jitter"] != "stratified" {
		t.Errorf("the second version is %v", second)
	}
	if got := s.admin(t, "GET", configPath, "").Is(t, 200); !strings.Contains(got.Body,
		`"calendar":{"zone":"Europe/Berlin","open":["mon-fri 09:00-17:00"],"closed":["2026-12-25"]}`) {
		t.Errorf("the config is %s", got.Body)
	}

	if a := s.admin(t, "POST", "/admin/rate-limit/cache/flush", "").Is(t, 204); a.Body != "" {
		t.Errorf("flush answers %q", a.Body)
	}
}

func TestBadConfigs(t *testing.T) {
	s := real(t)
	for body, want := range map[string]string{
		`{"maxPerWindow":1,` +
			`"windowSize":"PT4S"}`: "configName is missing",
		`{"configName":"c",` +
			`"windowSize":"PT4S"}`: "maxPerWindow is missing",
		`{"configName":"c",` +
			`"maxPerWindow":1}`: "windowSize is missing",
		`{"configName":"","maxPerWindow":1,` +
			`"windowSize":"PT4S"}`: "configName must not be empty",
		`{"configName":"*","maxPerWindow":1,` +
			`"windowSize":"PT4S"}`: "configName must not be",
		`{"configName":"c","maxPerWindow":-1,` +
			`"windowSize":"PT4S"}`: "maxPerWindow is -1",
		`{"configName":"c","maxPerWindow":10000000000,` +
			`"windowSize":"PT4S"}`: "maxPerWindow is 10000000000",
		`{"configName":"c","maxPerWindow":1.5,` +
			`"windowSize":"PT4S"}`: "maxPerWindow must be a whole number",
		`{"configName":"c","maxPerWindow":"1",` +
			`"windowSize":"PT4S"}`: "maxPerWindow must be a whole number",
		`{"configName":"c","maxPerWindow":1,` +
			`"windowSize":"4s"}`: "windowSize is wrong",
		`{"configName":"c","maxPerWindow":1,` +
			`"windowSize":"PT0S"}`: "windowSize is wrong",
		`{"configName":"c","maxPerWindow":1,` +
			`"windowSize":"P1M"}`: "windowSize is wrong",
		`{"configName":"c","maxPerWindow":1,` +
			`"windowSize":"PT25H"}`: "windowSize is wrong",
		`{"configName":"c","maxPerWindow":1,"windowSize":"PT4S",` +
			`"jitter":"none"}`: `jitter is "none"`,
		`{"configName":"c","maxPerWindow":1,"windowSize":"PT4S",` +
			`"scope":""}`: "scope must not be empty",
		`{"configName":"c","maxPerWindow":1,"windowSize":"PT4S",` +
			`"scope":"a\u0000"}`: "scope holds a control character",
		`{"configName":"c","maxPerWindow":1,"windowSize":"PT4S",` +
			`"maxDelay":"PT2S"}`: "maxDelay is PT2S, want at least windowSize (PT4S) and at most PT9600H",
		`{"configName":"c","maxPerWindow":1,"windowSize":"PT4S",` +
			`"maxDelay":"10m"}`: `maxDelay "10m" is wrong: want days, hours`,
		`{"configName":"c","maxPerWindow":1,"windowSize":"PT4S",` +
			`"maxDelay":"P401D"}`: `maxDelay "P401D" is wrong: want at most PT9600H`,
		`{"configName":"c","maxPerWindow":1,"windowSize":"PT4S",` +
			`"calendar":{"open":[]}}`: "calendar.zone is missing",
		`{"configName":"c","maxPerWindow":1,"windowSize":"PT4S","calendar":{"zone":"UTC",` +
			`"open":[]}}`: "calendar is wrong: open",
		`{"configName":"c","maxPerWindow":1,"windowSize":"PT4S",` +
			`"calendar":{"zone":"Mars/X"}}`: "calendar is wrong: zone",
		`{"configName":"c","maxPerWindow":1,"windowSize":"PT4S","calendar":{"zone":"UTC",` +
			`"closed":["x"]}}`: "calendar is wrong: closed[0]",
		`{"configName":"c","maxPerWindow":1,"windowSize":"PT4S","maxperwindow":2}`: `did you mean "maxPerWindow"?`,
	} {
		s.admin(t, "POST", configPath, body).Is(t, 400).Says(t, want)
	}
	if a := s.admin(t, "GET", "/admin/rate-limit/configs", "").Is(t, 200); a.Body != "{\"configs\":[]}\n" {
		t.Errorf("there are configs now: %s", a.Body)
	}
}

// TestAdminIsGuarded: admin paths admit nobody without the right.
func TestAdminIsGuarded(t *testing.T) {
	s := withDefault(t)
	for _, c := range [][2]string{{"GET", configPath}, {"POST", configPath}, {"GET", "/admin/rate-limit/configs"},
		{"POST", "/admin/rate-limit/cache/flush"}, {"GET", "/admin/"}, {"DELETE", configPath}} {
		a := s.do(t, c[0], c[1], "").Is(t, 401).Says(t, "HEADGATE_ADMIN_TOKEN")
		if a.Header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%v: WWW-Authenticate is %q", c, a.Header.Get("WWW-Authenticate"))
		}
		s.do(t, c[0], c[1], "", "Authorization", "Bearer x").Is(t, 401)
	}
	if log := s.log.String(); strings.Contains(log, adminToken) {
		t.Errorf("the log tells the token: %s", log)
	}
}

func TestAdminErrors(t *testing.T) {
	broken := errors.New("broken")
	s := newServer(t, &scripted{
		put: func(context.Context, slots.NewConfig) (slots.Config, error) { return slots.Config{}, slots.ErrConflict },
		err: &slots.StoreError{Kind: slots.Failed, Op: "x", Err: broken},
	})
	s.admin(t, "POST", configPath, `{"configName":"c","maxPerWindow":1,"windowSize":"PT4S"}`).Is(t, 409)
	s.admin(t, "POST", "/admin/rate-limit/cache/flush", "").Is(t, 500)
	s.do(t, "GET", "/api/v1/configs", "").Is(t, 500)
}
