package envoysent_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/internal/app/envoyconf"
	"github.com/headgate-rls/headgate/internal/app/envoysent"
)

func load(t *testing.T, files ...string) (*descriptors.Set, *descriptors.Spec) {
	t.Helper()
	var sources []rulefile.Source
	for i, text := range files {
		sources = append(sources, rulefile.Source{Name: fmt.Sprint(i), Data: []byte(text)})
	}
	set, spec, problems := rulefile.LoadSpec(sources, rulefile.Options{})
	if set == nil {
		t.Fatal(problems)
	}
	return set, spec
}

// TestMissing: what is printed lacks nothing; each action that is taken away is missed, and so is each that leaves out
// the whole descriptor.
func TestMissing(t *testing.T) {
	rules, err := os.ReadFile("../envoyconf/testdata/clients.yaml")
	if err != nil {
		t.Fatal(err)
	}
	set, spec := load(t, string(rules))
	conf, err := envoyconf.New(set, spec, envoyconf.Options{Version: envoyconf.Oldest, Listen: 10000,
		Address: []string{"127.0.0.1:8081"}, Services: []string{"127.0.0.1:8082"}, Upstream: []string{"127.0.0.1:9000"},
		Admin: "127.0.0.1:9901", LeaseKey: "lease", Owner: "envoy", Timeout: 500 * time.Millisecond,
		Tokens: "lua"})
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []func() ([]byte, error){conf.Bootstrap, conf.Fragments, conf.EnvoyFilter} {
		printed, err := form()
		if err != nil {
			t.Fatal(err)
		}
		if found := envoysent.Missing(set, "envoy.yaml", printed); len(found) > 0 {
			t.Errorf("of what is printed: %v", found)
		}
		var actions, skips int
		for i, line := range strings.Split(string(printed), "\n") {
			change := func(to, want string) {
				t.Helper()
				text := strings.Replace(string(printed), line+"\n", to, 1)
				found := envoysent.Missing(set, "envoy.yaml", []byte(text))
				if len(found) != 1 || found[0].Line == 0 && !strings.Contains(want, "begins") ||
					!strings.Contains(found[0].String(), want) {
					t.Errorf("without line %d, %s: %v, want %q", i+1, line, found, want)
				}
			}
			key := actionKey(line)
			switch key {
			case "":
				continue
			case "method", "path":
				change("", "no list of actions begins with method")
			default:
				change("", "no action sends "+key)
			}
			actions++
			if strings.Contains(line, ", skip_if_absent: true") {
				without := strings.Replace(line, ", skip_if_absent: true", "", 1) + "\n"
				change(without, "the action for "+key+" has no skip_if_absent")
				skips++
			}
		}
		if actions != 7 || skips != 3 {
			t.Errorf("%d actions, %d that may be left out", actions, skips)
		}
	}
}

// actionKey returns the descriptor key of the action on a line, or "" if the line has no action.
func actionKey(line string) string {
	if _, rest, ok := strings.Cut(line, "descriptor_key: "); ok {
		key, _, _ := strings.Cut(rest, ",")
		key, _, _ = strings.Cut(key, "}")
		return strings.Trim(key, "'")
	}
	name, ok := strings.CutPrefix(strings.TrimSpace(line), "- {")
	if name, _, found := strings.Cut(name, ":"); ok && found && strings.HasSuffix(name, "remote_address") {
		return name
	}
	return ""
}

// TestMissingOfOthers: other domains, no rules by method and path, and what is no configuration.
func TestMissingOfOthers(t *testing.T) {
	set, _ := load(t, "domain: a\nresources: [{path: /a, by: remote_address, rate_limit: {unit: day, "+
		"requests_per_unit: 1}}]",
		"domain: b\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]")
	const filter = "f: {domain: %s, rate_limit_service: {}}\n" +
		"r: [{actions: [{request_headers: {descriptor_key: method}}, " +
		"{request_headers: {descriptor_key: path}}]}]\n"
	for text, want := range map[string]string{
		fmt.Sprintf(filter, "a"): "2:15: no action sends remote_address",
		fmt.Sprintf(filter, "c"): `1:13: Envoy asks about the domain "c", which the rules do not have`,
		fmt.Sprintf(filter, "b"): "", "{}": "begins with method", "a: [": "e:",
		"":                                      "begins with method",
		"r: [{actions: 7}, {actions: [7, {}]}]": "begins with method", "a: &a [*a]": "begins with method",
		strings.Repeat("[", 5000) + strings.Repeat("]", 5000): "e:",
	} {
		var got string
		for _, p := range envoysent.Missing(set, "e", []byte(text)) {
			got += p.String()
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%.40q: %s, want %q", text, got, want)
		}
	}
}
