package units

import (
	"strings"
	"testing"
)

// TestZonesComeFromTheDatabase: zones have the names of the IANA database. What depends on
// the machine or is a path is not a zone.
func TestZonesComeFromTheDatabase(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5"} {
		if loc, err := Zone(name); err != nil || loc.String() != name {
			t.Errorf("%s: %v, %v", name, loc, err)
		}
	}
	for _, name := range []string{"", "Local", "Europe/Berlim", "../etc/passwd", "/etc/localtime", "+02:00",
		strings.Repeat("A", 1000)} {
		if _, err := Zone(name); err == nil || len(err.Error()) > 200 {
			t.Errorf("%.20q: %v", name, err)
		}
	}
}
