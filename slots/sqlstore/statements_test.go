package sqlstore

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documented is how many arguments each statement is given.
var documented = map[string]int{
	"peek": 3, "windows": 5, "gate": 1, "gateAll": 1, "make": 4, "lock": 5, "remake": 4, "provision": 4, "scheduled": 4,
	"stale": 4, "dropStale": 3, "bumpEpoch": 2, "addEpoch": 2, "frontier": 3, "addFrontier": 4,
	"lockWait": 3, "count": 3, "setCount": 4, "slotIn": 1,
	"run": 4, "overlaps": 5, "dropOverlap": 5, "addRun": 5, "dropRuns": 2, "dropOldRuns": 1, "purgeRuns": 1,
	"activeConfig": 1, "activeConfigs": 1, "configByID": 1, "deactivate": 1, "insertConfig": 5,
	"bump": 0, "generation": 0, "lockGeneration": 0, "control": 1, "setScope": 1,
	"since": 4, "lead": 4, "addLeader": 1, "clock": 0, "purgeFrontiers": 3, "purgeWindows": 3, "purgeSlots": 2,
	"dropFrontiers": 2, "drift": 5,
}

// Every statement of every dialect has a placeholder for each argument, and
// none without one; no text has anything but placeholders where values go.
func TestStatementsHaveAllTheirPlaceholders(t *testing.T) {
	for _, dialectOf := range dialects {
		d := dialectOf()
		all := reflect.ValueOf(d.statements)
		if all.NumField() != len(documented) {
			t.Fatalf("there are %d statements, and %d are documented", all.NumField(), len(documented))
		}
		for i := range all.NumField() {
			name := all.Type().Field(i).Name
			s := statement{text: all.Field(i).Field(0).String()}
			for k := range all.Field(i).Field(1).Len() {
				s.order = append(s.order, int(all.Field(i).Field(1).Index(k).Int()))
			}
			if s.text == "" && (name == "remake" || strings.HasPrefix(name, "gate")) {
				continue
			}
			if strings.HasPrefix(s.text, "LOCK TABLE ") {
				continue // which has no arguments
			}
			n, ok := documented[name]
			if !ok {
				t.Errorf("%s is not documented", name)
			}
			if name == "lock" && !strings.Contains(s.text, "ACT_IN") {
				n-- // gate returns it
			}
			checkStatement(t, d.Name+" "+name, s, n)
		}
	}
}

var placeholder = regexp.MustCompile(`\?[0-9]*|[$:][0-9]+`)

var literals = regexp.MustCompile(`'[^']*'`)

func checkStatement(t *testing.T, name string, s statement, n int) {
	t.Helper()
	marks := placeholder.FindAllString(literals.ReplaceAllString(strings.ReplaceAll(s.text, "::", " AS "), ""), -1)
	given := n
	if s.order != nil {
		given = len(s.order)
		for arg := range n {
			if !slices.Contains(s.order, arg) {
				t.Errorf("%s makes no use of argument %d", name, arg)
			}
		}
		if slices.Max(s.order) >= n {
			t.Errorf("%s makes use of argument %d of %d", name, slices.Max(s.order), n)
		}
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(marks)))
	if len(marks) > 0 && marks[0] == "?" {
		distinct = marks // each is another
	}
	if len(distinct) != given {
		t.Errorf("%s has %d placeholders for %d arguments:\n%s", name, len(distinct), given, s.text)
	}
	if strings.HasSuffix(s.text, ";") || strings.Contains(s.text, "%") {
		t.Errorf("%s: %s", name, s.text)
	}
}
