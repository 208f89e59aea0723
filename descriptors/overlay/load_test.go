package overlay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

// Load reports each error with its place, and returns no overlay if there is one.
func TestOverlayErrorsHaveTheirPlace(t *testing.T) {
	entry := func(text string) string { return "overlay:\n- {domain: d, rule: r, " + text + "}\n" }
	for _, c := range []struct{ text, want string }{
		{entry("window: 15m"), ""},
		{entry("algorithm: token_bucket, unit_multiplier: 15, burst: 3, local_share: 2, on_backend_error: local, " +
			"on_overload: deny"), ""},
		{entry("windw: 15m"), `o.yaml:2:24: unknown key "windw" in an entry of overlay; did you mean "window"?`},
		{entry("window: soon"), "o.yaml:2:32: window"},
		{entry("window: 100y"), "o.yaml:2:32: window"},
		{entry("window: 1s, unit_multiplier: 3"), "one of the two is enough"},
		{entry("unit_multiplier: 0"), "o.yaml:2:41: unit_multiplier"},
		{entry("algorithm: sliding"), "o.yaml:2:35: algorithm"},
		{entry("algorithm: concurrency"), "makes no limits on requests in flight"},
		{entry("burst: 3"), "burst needs algorithm: token_bucket"},
		{entry("algorithm: sliding_log, burst: 3"), "burst needs algorithm: token_bucket"},
		{entry("overflow: debt, max_debt: 7"), ""},
		{entry("choose: model, prefer: 2, warn_at: 80%, request_headers: {x-budget: near}"), ""},
		{entry("prefer: 2"), "o.yaml:2:32: prefer needs choose in the same entry"},
		{entry("request_headers: {x-budget: near}"), "o.yaml:2:41: request_headers needs warn_at in the same entry"},
		{entry("warn_at: 80"), `o.yaml:2:33: warn_at "80" is no percentage`},
		{entry("overflow: deny"), "o.yaml:2:34: overflow"},
		{entry("overflow: saturate, max_debt: 7"), "max_debt needs overflow: debt"},
		{entry("local_share: 1"), "local_share"},
		{entry("local_share: auto"), ""},
		{entry("local_share: atuo"), `o.yaml:2:37: local_share must be a whole number, not the text "atuo"`},
		{entry("on_backend_error: open"), "on_backend_error"},
		{entry("on_overload: local"), "on_overload"},
		{"overlay:\n- {domain: d, rule: r}\n", "the entry changes nothing"},
		{"overlay:\n- {domain: d, window: 1s}\n", `o.yaml:2:3: the entry has no rule; write "*" for all`},
		{"overlay:\n- {domain: '', rule: r, window: 1s}\n", "domain is empty"},
		{"overlay:\n- {domain: d, rule: r, window: 1s, window: 2s}\n", "given twice"},
		{"overlay: 3\n", "must be a list"},
		{"overlays: []\n", "unknown key"},
		{"domain: d\n", "does not belong in an overlay's top level"},
		{"{}\n", "has no overlay"},
		{"", "it must start with overlay"},
		{"overlay: [\n", "not valid YAML"},
		{"overlay:\n" + strings.Repeat("- {domain: d, rule: r, window: 1s}\n", 1001), "more than 1000 entries"},
	} {
		o, problems := Load([]rulefile.Source{{Name: "o.yaml", Data: []byte(c.text)}})
		var texts []string
		for _, p := range problems {
			texts = append(texts, p.String())
		}
		all := strings.Join(texts, "\n")
		if c.want == "" && (o == nil || all != "") || c.want != "" && (o != nil || !strings.Contains(all, c.want)) {
			t.Errorf("%.80q: %v, problems %s, want %q", c.text, o != nil, all, c.want)
		}
	}
}

// TestCalendarOverlay: an overlay makes windows those of a calendar, or keeps them from
// it; reading it again makes the same overlay.
func TestCalendarOverlay(t *testing.T) {
	read := func(text string) ([]byte, []descriptors.Problem) {
		o, problems := Load(
			[]rulefile.Source{{Name: "o.yaml", Data: []byte("overlay:\n  - {domain: \"*\", rule: \"*\", " + text + "}\n")}})
		return o.Sum(), problems
	}
	berlin, problems := read("calendar: true, time_zone: Europe/Berlin")
	again, _ := read("calendar: true, time_zone: Europe/Berlin")
	paris, _ := read("calendar: true, time_zone: Europe/Paris")
	never, _ := read("calendar: false")
	if berlin == nil || string(berlin) != string(again) || string(berlin) == string(paris) ||
		string(berlin) == string(never) {
		t.Errorf("%v: %x %x %x %x", problems, berlin, again, paris, never)
	}
	if _, problems := read("calendar: true, time_zone: Mars"); !strings.Contains(fmt.Sprint(problems),
		`o.yaml:2:57: time_zone "Mars"`) {
		t.Error(problems)
	}
}
