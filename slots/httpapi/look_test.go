package httpapi

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/slots"
)

func TestGetSlot(t *testing.T) {
	s := withDefault(t)
	for _, id := range []string{"pay-123", "a/b", "..", ".", "né%2F", "50% off?#;&", "  x"} {
		made := s.do(t, "POST", "/api/v1/slots", fmt.Sprintf(`{"eventId":%q,"requestedTime":"2025-06-01T12:00:01.0000001Z"}`,
			id)).Is(t, 200).Object(t)
		escaped := strings.ReplaceAll(url.PathEscape(id), ".", "%2E")
		v := s.do(t, "GET", "/api/v1/slots/"+escaped, "").Is(t, 200).Object(t)
		keys(t, v, "eventId", "scheduledTime", "delayMs", "windowStart", "configId", "requestedTime", "createdAt")
		if v["eventId"] != id || v["scheduledTime"] != made["scheduledTime"] || v["delayMs"] != made["delayMs"] ||
			v["requestedTime"] != "2025-06-01T12:00:01.000001Z" || v["configId"] == "" {
			t.Errorf("%q: %v, assigned as %v", id, v, made)
		}
		start, err := time.Parse(milliForm, v["windowStart"].(string))
		if err != nil || start.UnixMilli()%4000 != 0 {
			t.Errorf("windowStart is %v: %v", v["windowStart"], err)
		}
		if _, err := time.Parse(microForm, v["createdAt"].(string)); err != nil {
			t.Errorf("createdAt: %v", err)
		}
	}
	s.do(t, "GET", "/api/v1/slots/nobody", "").Is(t, 404).Says(t, "has no slot")
	s.do(t, "GET", "/api/v1/slots/"+strings.Repeat("e", 51), "").Is(t, 400).Says(t, "eventId has 51 bytes")
	s.do(t, "GET", "/api/v1/slots/a%00", "").Is(t, 400).Says(t, "eventId holds a control character")
	s.do(t, "GET", "/api/v1/slots/a%FF", "").Is(t, 400).Says(t, "eventId is not valid UTF-8")
}

// TestListSlots pages through all slots, in the order of creation.
func TestListSlots(t *testing.T) {
	s := withDefault(t)
	var want []string
	for i := range 7 {
		want = append(want, fmt.Sprint("e", i))
		s.do(t, "POST", "/api/v1/slots", fmt.Sprintf(`{"eventId":"e%d","requestedTime":"2025-06-01T12:00:00Z"}`,
			i)).Is(t, 200)
	}
	var got []string
	var last map[string]any
	target := "/api/v1/slots?limit=3&since=1999-01-01T00:00:00Z"
	for next := ""; ; {
		v := s.do(t, "GET", target+next, "").Is(t, 200).Object(t)
		for _, slot := range v["slots"].([]any) {
			last = slot.(map[string]any)
			keys(t, last, "eventId", "scheduledTime", "delayMs", "windowStart", "configId", "requestedTime", "createdAt")
			got = append(got, last["eventId"].(string))
		}
		after, more := v["next"].(string)
		if !more {
			break
		}
		next = "&after=" + after
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("listed %v, want %v", got, want)
	}
	// since is included; a later one is not.
	at, err := time.Parse(time.RFC3339, last["createdAt"].(string))
	if err != nil {
		t.Fatal(err)
	}
	if v := s.do(t, "GET", "/api/v1/slots?since="+at.Format(time.RFC3339Nano), "").Is(t, 200).Object(t); len(
		v["slots"].([]any)) == 0 {
		t.Errorf("since %v lists none", at)
	}
	if a := s.do(t, "GET", "/api/v1/slots?since="+at.Add(time.Microsecond).Format(time.RFC3339Nano), "").Is(t,
		200); a.Body != "{\"slots\":[]}\n" {
		t.Errorf("after %v: %s", at, a.Body)
	}
}

func TestSinceAndAfter(t *testing.T) {
	var got slots.Position
	s := newServer(t, &scripted{since: func(_ context.Context, p slots.Position, _ int) ([]slots.Slot, error) {
		got = p
		return nil, nil
	}})
	at := time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC).UnixMicro()
	after := cursor(slots.Position{CreatedUs: at, ID: "id.1"})
	for query, want := range map[string]slots.Position{
		"":                                   {CreatedUs: time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()},
		"since=2025-06-01T12:00:00Z":         {CreatedUs: at},
		"since=2025-06-01T14:00:00%2B02:00":  {CreatedUs: at},
		"since=2025-06-01T11:59:59.9999999Z": {CreatedUs: at},
		"after=" + after:                     {CreatedUs: at, ID: "id.1"},
		"since=2025-06-01T12:00:00Z&after=" + after:        {CreatedUs: at, ID: "id.1"},
		"since=2025-06-01T12:00:00.000001Z&after=" + after: {CreatedUs: at + 1},
	} {
		s.do(t, "GET", "/api/v1/slots?"+query, "").Is(t, 200)
		if got != want {
			t.Errorf("%s begins at %v, want %v", query, got, want)
		}
	}
}

func TestBadQueries(t *testing.T) {
	s := withDefault(t)
	raw := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	for query, want := range map[string]string{
		"slots?limit=0":                                      "limit is",
		"slots?limit=1001":                                   "from 1 to 1000",
		"slots?limit=-1":                                     "limit is",
		"slots?limit=%2B5":                                   "limit is",
		"slots?limit=1e2":                                    "limit is",
		"slots?limit=99999999999999999999":                   "limit is",
		"slots?limit=":                                       "limit must not be empty",
		"slots?limit=1&limit=1":                              "limit is given 2 times",
		"slots?sinse=2025-06-01T12:00:00Z":                   "sinse is an unknown parameter; known: since, after, limit",
		"slots?since=yesterday":                              "since is",
		"slots?since=1899-12-31T00:00:00Z":                   "since is outside",
		"slots?since=2025-06-01T12:00:00+02:00":              "since is", // + is a space here
		"slots?a;b":                                          "query of the URL",
		"slots?since=%zz":                                    "query of the URL",
		"slots?after=x":                                      "after must be",
		"slots?after=" + raw("12"):                           "after must be",
		"slots?after=" + raw("12."):                          "after must be",
		"slots?after=" + raw("+12.id"):                       "after must be",
		"slots?after=" + raw("12.i\x00d"):                    "after must be",
		"slots?after=" + raw("12.i\xffd"):                    "after must be",
		"slots?after=" + raw("9223372036854775807.id"):       "after must be",
		"slots?after=" + raw("12."+strings.Repeat("i", 200)): "after must be",
		"windows?config=":                                    "config must not be empty",
		"windows?config=a%00":                                "config holds a control character",
		"windows?from=9000-01-01T00:00:00Z":                  "from is outside",
		"windows?limit=1001":                                 "limit is",
		"configs?name=x":                                     "name is an unknown parameter; known: none",
		"slots/x?y=1":                                        "y is an unknown parameter",
	} {
		s.do(t, "GET", "/api/v1/"+query, "").Is(t, 400).Says(t, want)
	}
	s.do(t, "GET", "/api/v1/windows?config=nowhere", "").Is(t, 404)
}

func TestWindowsShowWhatIsFree(t *testing.T) {
	now := time.Date(2026, 3, 2, 8, 59, 30, 0, time.UTC) // a Monday
	s := real(t, func(c *Config) { c.Now = func() time.Time { return now } })
	s.admin(t, "POST", "/admin/rate-limit/config",
		`{"configName":"default","maxPerWindow":7,"windowSize":"PT1M","calendar":{"zone":"UTC","open":["mon `+
			`09:00-09:02"]}}`).Is(t, 200)
	for i := range 9 {
		s.do(t, "POST", "/api/v1/slots", fmt.Sprintf(`{"eventId":"e%d","requestedTime":"2026-03-02T08:00:00Z"}`,
			i)).Is(t, 200)
	}
	v := s.do(t, "GET", "/api/v1/windows?limit=5", "").Is(t, 200).Object(t)
	keys(t, v, "configId", "configName", "maxPerWindow", "windowSize", "effectiveFrom", "active", "calendar", "now",
		"nextFree", "windows")
	if v["nextFree"] != "2026-03-02T09:01:00.000Z" {
		t.Errorf("the next free window is %v", v["nextFree"])
	}
	var got []string
	for _, w := range v["windows"].([]any) {
		keys(t, w, "start", "count", "capacity")
		w := w.(map[string]any)
		got = append(got, fmt.Sprint(strings.TrimPrefix(w["start"].(string), "2026-03-02T"), " ", w["count"], "/",
			w["capacity"]))
	}
	want := "08:59:00.000Z 0/0, 09:00:00.000Z 7/7, 09:01:00.000Z 2/7, 09:02:00.000Z 0/0, 09:03:00.000Z 0/0"
	if strings.Join(got, ", ") != want || v["now"] != "2026-03-02T08:59:30.000Z" {
		t.Errorf("at %v the windows are %v, want %s", v["now"], got, want)
	}
	// The next opening but one, a week later, and the usual number of windows.
	v = s.do(t, "GET", "/api/v1/windows?config=default&from=2026-03-09T10:00:30%2B01:00", "").Is(t, 200).Object(t)
	list := v["windows"].([]any)
	if first := list[0].(map[string]any); len(list) != 60 || first["start"] != "2026-03-09T09:00:00.000Z" ||
		first["capacity"] != 7.0 {
		t.Errorf("%d windows, the first is %v", len(list), first)
	}
}

// The answer names the first window with room even if it is not among those listed, and
// its absence does no harm.
func TestWindowsTellTheNextFreeOne(t *testing.T) {
	now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	s := real(t, func(c *Config) { c.Now = func() time.Time { return now } })
	s.admin(t, "POST", "/admin/rate-limit/config", `{"configName":"default","maxPerWindow":1,"windowSize":"PT1M"}`).Is(t,
		200)
	for i := range 7 {
		s.do(t, "POST", "/api/v1/slots", fmt.Sprintf(`{"eventId":"e%d","requestedTime":"2026-03-02T09:00:00Z"}`,
			i)).Is(t, 200)
	}
	for query, want := range map[string]any{"": "09:07", "?limit=3": "09:07", "?limit=7": "09:07", "?limit=8": "09:07",
		"?limit=1&from=2026-03-02T10:00:00Z": "10:00"} {
		if got := s.do(t, "GET", "/api/v1/windows"+query, "").Is(t, 200).Object(t)["nextFree"]; got != fmt.Sprintf(
			"2026-03-02T%s:00.000Z", want) {
			t.Errorf("%q: the next free window is %v, want %v", query, got, want)
		}
	}
	s.admin(t, "POST", "/admin/rate-limit/config", `{"configName":"default","maxPerWindow":0,"windowSize":"PT1M"}`).Is(t,
		200)
	if got, ok := s.do(t, "GET", "/api/v1/windows", "").Is(t, 200).Object(t)["nextFree"]; ok {
		t.Errorf("a paused config has the free window %v", got)
	}
}

func TestWindowsWithoutTheNextFreeOne(t *testing.T) {
	s := newServer(t, &fullWindows{newScheduler(t, slots.Settings{})})
	s.admin(t, "POST", "/admin/rate-limit/config", `{"configName":"default","maxPerWindow":1,"windowSize":"PT1M"}`).Is(t,
		200)
	v := s.do(t, "GET", "/api/v1/windows", "").Is(t, 200).Object(t)
	if _, ok := v["nextFree"]; ok || len(v["windows"].([]any)) != 60 {
		t.Errorf("the answer is %v", v)
	}
}

// fullWindows has no window with room, and takes too long to say so.
type fullWindows struct{ Scheduler }

func (f *fullWindows) Windows(_ context.Context, c slots.Config, fromMs int64, n int) ([]slots.Window, error) {
	list := make([]slots.Window, n)
	for i := range list {
		list[i] = slots.Window{StartMs: fromMs + int64(i)*c.SizeMs, Count: c.Max}
	}
	return list, nil
}

func (f *fullWindows) NextFree(ctx context.Context, _ slots.Config, _ int64) (int64, bool, error) {
	<-ctx.Done()
	return 0, false, ctx.Err()
}

func TestConfigsList(t *testing.T) {
	s := withDefault(t)
	s.admin(t, "POST", "/admin/rate-limit/config", `{"configName":"batch","maxPerWindow":5,"windowSize":"PT1M"}`).Is(t,
		200)
	s.admin(t, "POST", "/admin/rate-limit/config", `{"configName":"batch","maxPerWindow":6,"windowSize":"PT1M"}`).Is(t,
		200)
	open := s.do(t, "GET", "/api/v1/configs", "").Is(t, 200)
	if guarded := s.admin(t, "GET", "/admin/rate-limit/configs", "").Is(t, 200); guarded.Body != open.Body {
		t.Errorf("%s and %s differ", guarded.Body, open.Body)
	}
	var got []string
	for _, c := range open.Object(t)["configs"].([]any) {
		c := c.(map[string]any)
		got = append(got, fmt.Sprint(c["configName"], " ", c["maxPerWindow"], " ", c["active"]))
	}
	if fmt.Sprint(got) != "[batch 6 true default 100 true]" {
		t.Errorf("the configs are %v", got)
	}
}

// A config whose row cannot be read hides no other: the list names it and says what is wrong. A new version mends it.
func TestAConfigThatCannotBeReadIsListedAsSuch(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "slots.db")
	s := newServer(t, schedulerOf(t, url, slots.Settings{}))
	const bad = `{"configName":"bad","maxPerWindow":5,"windowSize":"PT1M"}`
	s.admin(t, "POST", "/admin/rate-limit/config", bad).Is(t, 200)
	s.admin(t, "POST", "/admin/rate-limit/config", strings.Replace(bad, "bad", "good", 1)).Is(t, 200)
	db, err := sqldb.Open(sqldb.Config{URL: url})
	if err == nil {
		_, err = db.Write.ExecContext(t.Context(),
			"UPDATE RL_EVENT_WNDW_CONFIG SET WNDW_SIZE_ISO_DUR_TX = 'by hand' WHERE WNDW_CONFIG_NM = 'bad'")
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	s.admin(t, "POST", "/admin/rate-limit/cache/flush", "").Is(t, 204)
	list := s.do(t, "GET", "/api/v1/configs", "").Is(t, 200).Object(t)
	if l := list["configs"].([]any); len(l) != 1 || l[0].(map[string]any)["configName"] != "good" {
		t.Errorf("listed are %v", l)
	}
	unreadable := list["unreadable"].([]any)
	keys(t, unreadable[0], "configId", "configName", "error")
	if c := unreadable[0].(map[string]any); len(unreadable) != 1 || c["configName"] != "bad" ||
		!strings.Contains(c["error"].(string), `"by hand"`) {
		t.Errorf("not read are %v", unreadable)
	}
	s.admin(t, "GET", "/admin/rate-limit/config?name=bad", "").Is(t, 500).Says(t, `config "bad"`).Says(t,
		"put a new version")
	s.admin(t, "POST", "/admin/rate-limit/config", bad).Is(t, 200)
	list = s.do(t, "GET", "/api/v1/configs", "").Is(t, 200).Object(t)
	keys(t, list, "configs")
}
