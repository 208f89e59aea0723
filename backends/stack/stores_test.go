package stack

import (
	"strings"
	"testing"
)

func TestCapsRefuseUnknownURLs(t *testing.T) {
	for url, want := range map[string]string{
		"memory": "want a URL such as memory://",
		"mongodb://x": `no backend for scheme "mongodb"; known are dynamodb, mariadb, memory, mysql, oracle, ` +
			`postgres, postgresql, redis`,
		"memory://?max_keys=no":  "max_keys=no is not a positive number",
		"memory://?maxkeys=1":    `memory has no parameter "maxkeys"; it has max_keys, max_leases and max_records`,
		"redis://h:1?layout=zzz": "layout",
		"dynamodb://limits": `dynamodb: needs the store of DynamoDB in the program: import _ "github.com/headgate-rls/` +
			`headgate/backends/dynamodb"`,
	} {
		if _, err := Caps(url); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
	if caps, err := Caps("memory://?max_keys=5"); err != nil || caps.Name != "memory" {
		t.Errorf("%v %v", caps, err)
	}
}
