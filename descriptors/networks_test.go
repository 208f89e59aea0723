package descriptors_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
)

// matched returns the path of the rule for a descriptor of one entry, "-" for none.
func matched(s *descriptors.Set, key, value string) string {
	var m descriptors.Match
	s.Match("d", []descriptors.Entry{{Key: key, Value: value}}, &m)
	if m.Rule == nil {
		return "-"
	}
	return m.Rule.Path
}

func perMinute(rules ...string) string {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for _, r := range rules {
		fmt.Fprintf(&b, "- {%s, rate_limit: {unit: minute, requests_per_unit: 5}}\n", r)
	}
	return b.String()
}

// TestNetworksComeBetweenTextAndAnyValue: exact text, text with a *, the smallest network, any value.
func TestNetworksComeBetweenTextAndAnyValue(t *testing.T) {
	s := mustLoad(t, perMinute(
		"key: ip", "key: ip, network: 10.0.0.0/8", `key: ip, value: "10.9.*"`, "key: ip, value: 10.9.9.9",
		"key: ip, network: [10.1.0.0/16, '2001:db8::/32']", "key: ip, network: 10.1.2.3", "key: ip, network: '::/0'",
		"key: only, network: 10.0.0.0/8",
	))
	for value, want := range map[string]string{
		"10.9.9.9": "ip_10.9.9.9", "10.9.9.8": "ip_10.9.*", "10.2.0.1": "ip_10.0.0.0/8", "10.1.0.1": "ip_10.1.0.0/16",
		"10.1.2.3": "ip_10.1.2.3/32", "11.0.0.1": "ip", "": "ip", "alice": "ip",
		"2001:db8::1": "ip_10.1.0.0/16", "2001:db9::1": "ip_::/0", // which has no address of IPv4
	} {
		if got := matched(s, "ip", value); got != want {
			t.Errorf("%q leads to %s, want %s", value, got, want)
		}
	}
	for value, want := range map[string]string{"10.0.0.1": "only_10.0.0.0/8", "11.0.0.1": "-", "alice": "-"} {
		if got := matched(s, "only", value); got != want {
			t.Errorf("of rules with a network alone, %q leads to %s, want %s", value, got, want)
		}
	}
	if got := matched(s, "other", "10.0.0.1"); got != "-" {
		t.Errorf("another key leads to %s", got)
	}
}

// TestSpellingsOfAddresses: which values are an address in 10.0.0.0/8, or one in fe80::/10 or ::1/128. Any other
// spelling is no address, so that nobody is exempt by one.
func TestSpellingsOfAddresses(t *testing.T) {
	s := mustLoad(t, perMinute("key: ip",
		"key: ip, network: [10.0.0.0/8, '::ffff:11.0.0.0/104', 'fe80::/10', '::1', 0.0.0.0/32]"))
	for value, in := range map[string]bool{
		"10.0.0.1": true, "::ffff:10.0.0.1": true, "::FFFF:0a00:0001": true, "10.0.0.1:443": true, "[::1]:80": true,
		"[::1]": true, "::1": true, "0:0:0:0:0:0:0:1": true, "fe80::1%eth0": true, "[fe80::1%eth0]:80": true,
		"[::ffff:10.0.0.1]:80": true, "10.2.0.0/16": true, "11.255.0.1": true, "0.0.0.0": true, "::ffff:10.1.0.0/112": true,
		"fe80::1%" + strings.Repeat("z", 50): true, "::ffff:10.0.0.1%eth0": true,

		"010.0.0.1": false, "10.0.0.01": false, "0x0a.0.0.1": false, "10.1": false, "167772161": false,
		"10.0.0.1.": false,
		" 10.0.0.1": false, "10.0.0.1 ": false, "10.0.0.1, 11.0.0.1": false, "11.0.0.1,12.0.0.1": false,
		"10.0.0.1\x00": false,
		"10.0.0.1:":    false, "10.0.0.1:x": false, "10.0.0.1:70000": false, "[10.0.0.1]": false, "[10.0.0.1]:80": false,
		"[::1": false, "::1]:80": false, "[::1]80": false, "0.0.0.0/0": false, "10.0.0.0/7": false, "10.0.0.1/33": false,
		"::1%": false, "::10.0.0.1": false, "12.0.0.1": false, "::": false,
		"localhost": false, "1０.0.0.1": false, "::ffff:0:0/95": false,
		"fe80::1%" + strings.Repeat("z", 60_000): false, strings.Repeat("1", 60_000): false,
		"[" + strings.Repeat(":", 60_000) + "]": false,
	} {
		want := map[bool]string{true: "ip_10.0.0.0/8", false: "ip"}[in]
		if got := matched(s, "ip", value); got != want {
			t.Errorf("%.60q leads to %s, want %s", value, got, want)
		}
	}
}

// TestExceptOfARule: the rule is not for these addresses, nor are those below it. The next one that has the value is.
func TestExceptOfARule(t *testing.T) {
	s := mustLoad(t, perMinute(
		"key: ip, except: {network: [10.0.0.0/8, '::1']}",
		"key: net", "key: net, network: 10.0.0.0/8", "key: net, network: 10.1.0.0/16, except: {network: 10.1.1.0/24}",
	)+`- key: deep
  except: {network: 10.0.0.0/8}
  descriptors:
  - {key: path, rate_limit: {unit: minute, requests_per_unit: 5}}
`)
	for _, c := range []struct{ key, value, want string }{
		{"ip", "10.0.0.1", "-"}, {"ip", "::1", "-"}, {"ip", "11.0.0.1", "ip"}, {"ip", "010.0.0.1", "ip"}, {"ip", "", "ip"},
		{"ip", "::ffff:10.0.0.1", "-"}, {"ip", "10.0.0.0/7", "ip"},
		{"net", "10.1.1.1", "net_10.0.0.0/8"}, {"net", "10.1.2.1", "net_10.1.0.0/16"}, {"net", "11.0.0.1", "net"},
	} {
		if got := matched(s, c.key, c.value); got != c.want {
			t.Errorf("%s=%s leads to %s, want %s", c.key, c.value, got, c.want)
		}
	}
	for value, want := range map[string]bool{"10.0.0.1": false, "11.0.0.1": true, "x": true} {
		var m descriptors.Match
		s.Match("d", []descriptors.Entry{{Key: "deep", Value: value}, {Key: "path", Value: "/"}}, &m)
		if (m.Rule != nil) != want {
			t.Errorf("below %s there is the rule %v", value, m.Rule)
		}
	}
}

// TestNetworksCount: each address of a network has a counter of its own, unless they share one; then the network's own
// text leads to the same rule.
func TestNetworksCount(t *testing.T) {
	s := mustLoad(t, perMinute("key: ip, network: 10.0.0.0/8", `key: all, value: "1*"`,
		"key: all, network: [20.0.0.0/8, 10.0.0.0/8], share_threshold: true", "key: all, max_keys: 1"))
	group := func(key, value string) string {
		var m descriptors.Match
		s.Match("d", []descriptors.Entry{{Key: key, Value: value}}, &m)
		return m.Group
	}
	if group("ip", "10.0.0.1") == group("ip", "10.0.0.2") {
		t.Error("two addresses have one counter")
	}
	if all := group("all", "20.0.0.1"); all != group("all", "20.1.2.3") || all != group("all", "20.0.0.0/8") {
		t.Error("addresses of a network with share_threshold have counters of their own")
	}
}

// TestNetworksAreNamed: texts of a rule show the networks of it, and every change of a long list.
func TestNetworksAreNamed(t *testing.T) {
	const one = "key: a, network: [10.0.0.0/8, 11.0.0.0/8, 12.0.0.0/8, 13.0.0.0/8]"
	const other = "key: a, network: [10.0.0.0/8, 11.0.0.0/8, 12.0.0.0/8, 14.0.0.0/8]"
	var dump strings.Builder
	set := mustLoad(t, perMinute(one, "key: b, except: {network: '::1'}"))
	if err := set.Dump(&dump); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"d.a_10.0.0.0/8: unit=MINUTE requests_per_unit=5, shadow_mode: false, network: 10.0.0.0/8 11.0.0.0/8 " +
			"12.0.0.0/8 and 1 more (",
		"d.b: unit=MINUTE requests_per_unit=5, shadow_mode: false, except: ::1/128",
	} {
		if !strings.Contains(dump.String(), want) {
			t.Errorf("the rules are\n%swithout\n%s", dump.String(), want)
		}
	}
	changes := mustLoad(t, perMinute(other, "key: b, except: {network: '::2'}")).Compare(set).Lines(10)
	if len(changes) != 2 || !strings.Contains(changes[1], "except ::1/128 -> 5/1m except ::2/128") {
		t.Errorf("the changes are %q", changes)
	}
}

// TestWildcardsBeforeNetworksAreWarnedOf: a network that nothing is left for.
func TestWildcardsBeforeNetworksAreWarnedOf(t *testing.T) {
	_, problems := loadOne(perMinute(`key: a, value: "*"`, "key: a, network: 10.0.0.0/8"))
	const want = "rules.yaml:4:3: warning: the rule never applies: wildcards come before it"
	if got := lines(problems); !strings.Contains(got, want) {
		t.Errorf("the problems are %s", got)
	}
}

// TestNetworksAllocateNothing, and values that are no address little.
func TestNetworksAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := mustLoad(t, "domain: d\ndescriptors:\n- {key: ip, network: [10.0.0.0/8, '::/0'], rate_limit: {unlimited: "+
		"true}}\n")
	for _, value := range []string{"10.0.0.1", "::1", "[::1]:80", "10.0.0.1:80", "10.0.0.0/16"} {
		es := []descriptors.Entry{{Key: "ip", Value: value}}
		var m descriptors.Match
		if got := testing.AllocsPerRun(200, func() { s.Match("d", es, &m) }); got > 0 {
			t.Errorf("%s: %v allocations", value, got)
		}
	}
}

// manyNetworks are rules with n networks, each of its own length and place.
func manyNetworks(n int) string {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n- key: ip\n  network:\n")
	for i := range n {
		at := netip.AddrFrom4([4]byte{byte(1 + i>>16), byte(i >> 8), byte(i), 0})
		fmt.Fprintf(&b, "  - %v\n", netip.PrefixFrom(at, 24+i%9))
	}
	b.WriteString("  rate_limit: {unlimited: true}\n- {key: ip, rate_limit: {unit: minute, requests_per_unit: 5}}\n")
	return b.String()
}

// BenchmarkNetworks: how many there are does not matter.
func BenchmarkNetworks(b *testing.B) {
	for _, n := range []int{10, 100_000} {
		s := mustLoad(b, manyNetworks(n))
		for name, value := range map[string]string{"in": "1.0.7.0", "out": "9.9.9.9", "IPv6": "2001:db8::1",
			"text": "alice"} {
			b.Run(fmt.Sprintf("networks=%d/%s", n, name), func(b *testing.B) {
				es := []descriptors.Entry{{Key: "ip", Value: value}}
				b.ReportAllocs()
				var m descriptors.Match
				for b.Loop() {
					s.Match("d", es, &m)
				}
			})
		}
	}
}
