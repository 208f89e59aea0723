package repo

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// floors are the rooms of the house, the lowest first: a room imports only rooms before it. A room is a folder of the
// top level or of internal; the library is one. Tests, tools and examples stand outside.
var floors = []string{
	"internal/kit", "limit", "policies", "descriptors", "backends", "ratelimit", "slots", "internal/wire", "library",
	"notify", "internal/app", "cmd",
}

// mostUpward bounds upward.
const mostUpward = 4

// upward are the arrows that run up against floors, with their reasons: "from -> to".
var upward = map[string]string{}

// outside are the folders that stand outside.
var outside = []string{"test", "tools", "examples"}

// roomOf returns the room of a package.
func roomOf(path string) string {
	parts := strings.Split(path, "/")
	switch {
	case path == "", parts[0] == "middleware", parts[0] == "metrics":
		return "library"
	case parts[0] == "tracing":
		return "ratelimit"
	case parts[0] == "internal" && len(parts) > 1:
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

// checkFloors returns what is wrong with the imports of a package, and which arrows upward it has.
func checkFloors(p pkg) (found, arrows []string) {
	from := roomOf(p.path)
	if slices.Contains(outside, from) {
		return nil, nil
	}
	at := slices.Index(floors, from)
	if at < 0 {
		return []string{fmt.Sprintf("%s is in the room %s, which has no floor", p.path, from)}, nil
	}
	for _, imported := range p.imports {
		our, isOurs := ours(imported)
		to := roomOf(our)
		if !isOurs || to == from || slices.Contains(outside, to) {
			continue // what tests may import is in the table of packages
		}
		if slices.Index(floors, to) > at {
			arrow := from + " -> " + to
			arrows = append(arrows, arrow)
			if upward[arrow] == "" {
				found = append(found, fmt.Sprintf("%s imports %s: the arrow %s runs up", p.path, imported, arrow))
			}
		}
	}
	return found, arrows
}

func TestArrowsBetweenRoomsRunDown(t *testing.T) {
	var used []string
	for _, p := range packages(t, root(t)) {
		found, arrows := checkFloors(p)
		for _, finding := range found {
			t.Error(finding)
		}
		used = append(used, arrows...)
	}
	if len(upward) > mostUpward {
		t.Errorf("%d arrows run up with a reason, at most %d may", len(upward), mostUpward)
	}
	for arrow := range upward {
		if !slices.Contains(used, arrow) {
			t.Errorf("no import is the arrow %s any more: take it off the table", arrow)
		}
	}
}

func TestFloors(t *testing.T) {
	for _, c := range []struct{ path, imported, want string }{
		{"ratelimit", "limit", ""},
		{"ratelimit/leases", "internal/wire/unary", "ratelimit -> internal/wire runs up"},
		{"internal/kit/web", "limit", "runs up"},
		{"internal/kit/web", "internal/kit/spell", ""},
		{"", "ratelimit", ""},
		{"middleware", "", ""},
		{"middleware", "internal/app/config", "library -> internal/app runs up"},
		{"test/bench", "internal/app/server", ""},
		{"attic", "limit", "no floor"},
	} {
		imported := strings.TrimSuffix(module+"/"+c.imported, "/")
		found, _ := checkFloors(pkg{path: c.path, imports: []string{imported}})
		expect(t, c.path+" imports "+c.imported, found, c.want)
	}
}
