package config

import (
	"fmt"
	"strconv"
	"strings"
)

// An alias is the name that another program has for a setting of ours, so that
// its environment and its file go on working.
type alias struct {
	property string // in the environment: in capitals, with _ for . and -
	flag     string // empty: the setting is read and has no effect
	note     string // why it has none
	refused  bool   // it is an error, and note says what to use
	seconds  bool   // it is a number of seconds
}

// ignored are settings of other programs that are read and have no effect, or are errors.
var ignored = []alias{
	{property: "rate-limiter.headroom-windows", note: "it has no effect any more: a search begins at the first window that has room"},
	{property: "quarkus.datasource.db-kind", note: "the URL has the kind of database"},
	{property: "throttlex.mode", refused: true, note: "remove it: " + isService},
	{property: "imposter.store.driver", refused: true, note: "remove it and set backend, such as redis://HOST:6379"},
	{property: "imposter.store.inmemory.ttl", refused: true,
		note: "remove it: counters expire with their windows; lease-ttl is for requests in flight whose end is never reported"},
}

func (a *alias) env() string {
	return strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(a.property))
}

// value returns what to set the flag to.
func (a *alias) value(text string) (string, error) {
	if !a.seconds {
		return text, nil
	}
	if _, err := strconv.ParseUint(text, 10, 31); err != nil {
		return "", fmt.Errorf("%q is not a number of seconds", text)
	}
	return text + "s", nil
}
