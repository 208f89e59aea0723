package units

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // for images without a database of time zones
)

// maxZone bounds the name of a time zone, in bytes.
const maxZone = 64

// Zone returns the time zone with a name of the IANA database, such as Europe/Berlin.
// The database is the system's if there is one, else the program's own. "Local" is no
// name: replicas would disagree.
func Zone(name string) (*time.Location, error) {
	if name != "" && name != "Local" && len(name) <= maxZone {
		if loc, err := time.LoadLocation(name); err == nil {
			return loc, nil
		}
	}
	if len(name) > maxZone {
		name = strings.ToValidUTF8(name[:maxZone], "") + "..."
	}
	return nil, fmt.Errorf("%q is not a time zone; write a name of the IANA database, such as UTC or Europe/Berlin", name)
}
