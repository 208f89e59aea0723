//go:build !rlsonly

package main

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestAnswersAsJSON: with --format json, what a command prints is one JSON value, whose fields about time say their
// unit.
func TestAnswersAsJSON(t *testing.T) {
	testenv.UseSQLite(t)
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	database := "sqlite:" + filepath.Join(t.TempDir(), "headgate.db")
	rules := writeRules(t, "domain: d\ndescriptors: [{key: k, policy: \"user:{k}\", rate_limit: {unit: hour, "+
		"requests_per_unit: 1}}]\n")
	r := startServe(t, "--rules", rules, "--policies", database, "--slots", database, "--slots-seed", "1/PT24H")
	http, db := " --addr http://"+r.HTTP, " --slots "+database
	for _, c := range []struct{ args, want string }{
		{"ask d k=v -n 2 --addr " + r.GRPC, `"code":"OVER_LIMIT","rule":"d/k","limits":[{"descriptor":"k=v",` +
			`"code":"OVER_LIMIT","limit":"1/1h","left":0,"retry_after_ms":`},
		{"ask d other=v --rules " + rules, `[{"domain":"d","code":"OK","limits":[{"descriptor":"other=v","code":"OK",` +
			`"left":0}]}]`},
		{"ask d k=v --addr 127.0.0.1:1", `[]`},
		{"health --addr " + r.GRPC, `{"status":"SERVING"}`},
		{"slot e1 --at 2026-12-01T09:00:00Z" + http, `[{"status":200,"eventId":"e1","scheduledTime":"2026-12-0`},
		{"slots assign e1 " + strings.Repeat("x", 51) + http, `,{"status":400,"eventId":"xxx`},
		{"slots config list" + http, `[{"configId":`},
		{"slots config get default" + db, `"configName":"default","maxPerWindow":1,"windowSize":"PT24H"`},
		{"slots config set default --max 5" + db, `"maxPerWindow":5`},
		{"slots config pause default" + db, `"maxPerWindow":0,`},
		{"slots config pause default" + db, `"maxPerWindowBefore":0}`},
		{"slots reconcile" + db, `[]`},
		{"policy set user:v --limit 3 --window 1m" + http, `[{"key":"user:v","change":"made","before":null,"after":{"key":` +
			`"user:v","algorithm":"sliding_window","limit":3,"window":"1m","version":1,`},
		{"policy get user:v" + http, `{"key":"user:v","algorithm":"sliding_window","limit":3,"window":"1m","version":1,`},
		{"policy list --policies " + database, `[{"key":"user:v",`},
		{"policy history" + http, `"key":"user:v"`},
		{"policy delete user:v --policies " + database, `"change":"removed","before":{"key":"user:v",`},
		{"migrate --policies " + database, `[{"setting":"policies","applied":[]}]`},
		{"version", `{"version":`},
		{"check " + rules, `{"files":1,"domains":1,"rules":1,"problems":[]}`},
		{"top" + http, `"retry_after_ms":`}, {"explain d k=v" + http, `"passes":`}, {"rules" + http, `"rule":"d/k"`},
		{"status" + http, `"status":"READY"`}, {"coverage" + http, `[`}, {"reloads" + http, `[`},
	} {
		_, out := headgate(t, append(strings.Fields(c.args), "--format", "json")...)
		answer, _, _ := strings.Cut(out, "\nheadgate: ") // an error on standard error
		var value any
		if err := json.Unmarshal([]byte(answer), &value); err != nil {
			t.Errorf("%s: %v: %s", c.args, err, out)
			continue
		}
		compact, _ := json.Marshal(json.RawMessage(answer))
		if !strings.Contains(string(compact), c.want) {
			t.Errorf("%s: %s, want %s", c.args, compact, c.want)
		}
		saysUnits(t, c.args, value)
	}
}

// aboutTime are the words in names of fields that are about lengths of time.
var aboutTime = regexp.MustCompile(`(?i)(retry|after|delay|duration|timeout|window|wait|age|elapsed|period|ttl)`)

// saysUnits finds fields about time that are numbers without a unit in their names.
func saysUnits(t *testing.T, command string, v any) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			if _, number := field.(float64); number && aboutTime.MatchString(name) &&
				!regexp.MustCompile(`(_ms|Ms|_seconds|Seconds|[pP]erWindow(Before)?|_percent)$`).MatchString(name) {
				t.Errorf("%s: %s is a number without a unit", command, name)
			}
			saysUnits(t, command, field)
		}
	case []any:
		for _, e := range v {
			saysUnits(t, command, e)
		}
	}
}
