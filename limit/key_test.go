package limit

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
)

func group(parts ...string) string {
	var b []byte
	for _, p := range parts {
		b = AppendPart(b, p)
	}
	return MakeGroup(b)
}

func TestMakeGroup(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		name  string
		parts []string
		want  string
	}{
		{"none", nil, ""},
		{"one", []string{"a"}, "1:a"},
		{"empty part", []string{""}, "0:"},
		{"parts that look like encodings", []string{"1:a", "2:"}, "3:1:a2:2:"},
		{"bytes, not runes", []string{"é"}, "2:é"},
		{"just within the bound", []string{x(124)}, "124:" + x(124)},
		{"beyond the bound", []string{x(125)}, hashed("125:" + x(125))},
	} {
		if got := group(c.parts...); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "h" + hex.EncodeToString(sum[:])
}

// TestGroupsDiffer: no two ways to make a group meet.
func TestGroupsDiffer(t *testing.T) {
	long := strings.Repeat("x", 200)
	seen := map[string]string{}
	for name, g := range map[string]string{
		"a b_c":                     group("a", "b_c"),
		"a_b c":                     group("a_b", "c"),
		"ab":                        group("ab"),
		"a b":                       group("a", "b"),
		"a b and an empty part":     group("a", "b", ""),
		"empty part, a b":           group("", "a", "b"),
		"no parts":                  group(),
		"empty part":                group(""),
		"two empty parts":           group("", ""),
		"long":                      group(long),
		"long, split":               group(long[:100], long[100:]),
		"long, split elsewhere":     group(long[:101], long[101:]),
		"a hash as a part":          group(group(long)),
		"raw hash":                  RawGroup(group(long)),
		"raw empty":                 RawGroup(""),
		"raw a":                     RawGroup("a"),
		"raw =a":                    RawGroup("=a"),
		"raw encoding":              RawGroup("1:a"),
		"raw just within the bound": RawGroup(long[:127]),
		"raw beyond the bound":      RawGroup(long[:128]),
		"raw long":                  RawGroup(long),
		"parts of raw long":         group("", "=", long),
		"raw long with =":           RawGroup("=" + long),
		"text empty":                text(""),
		"text a":                    text("a"),
		"text ~a":                   text("~a"),
		"text encoding":             text("1:a"),
		"text beyond the bound":     text(strings.Repeat(long, 11)),
		"text of its hash":          text(text(strings.Repeat(long, 11))),
		"raw text":                  RawGroup("~a"),
	} {
		if other, ok := seen[g]; ok {
			t.Errorf("%s and %s are both %q", name, other, g)
		}
		seen[g] = name
		if len(g) > MaxGroupLen {
			t.Errorf("%s has %d bytes", name, len(g))
		}
		if strings.Contains(g, long[:128]) {
			t.Errorf("%s shows a long value: %q", name, g)
		}
	}
}

func text(s string) string { return TextGroup([]byte(s)) }

func TestTextGroup(t *testing.T) {
	long := strings.Repeat("x", MaxTextGroupLen)
	for value, want := range map[string]string{
		"":          "~",
		"a":         "~a",
		long[1:]:    "~" + long[1:],
		long:        hashed("~" + long),
		long + long: hashed("~" + long + long),
	} {
		got := text(value)
		if got != want {
			t.Errorf("%.20q gives %.80q, want %.80q", value, got, want)
		}
		if back, ok := TextOf(got); ok != (len(value) < MaxTextGroupLen) || ok && back != value {
			t.Errorf("%.20q comes back as %.20q, %v", value, back, ok)
		}
	}
}

func TestRawGroup(t *testing.T) {
	long := strings.Repeat("x", 128)
	for value, want := range map[string]string{
		"":         "=",
		"a":        "=a",
		long[:127]: "=" + long[:127],
		long:       hashed("=" + long),
	} {
		if got := RawGroup(value); got != want {
			t.Errorf("%q gives %q, want %q", value, got, want)
		}
	}
}

func TestAppendPartKeepsPrefix(t *testing.T) {
	if got := string(AppendPart([]byte("before"), "ab")); got != "before2:ab" {
		t.Errorf("%q", got)
	}
}

// Groups of one partition share the half that names it, whatever their lengths, and no two are the same.
func TestGroupsOfOnePartition(t *testing.T) {
	part := func(texts ...string) (b []byte) {
		for _, text := range texts {
			b = AppendPart(b, text)
		}
		return b
	}
	long := strings.Repeat("x", 5000)
	seen := map[string]bool{}
	partitions := [][]byte{part(), part("ai"), part("ai", "+1:a"), part("ai", "user"), part("ai", long),
		part("ai", long+"y")}
	for _, partition := range partitions {
		first := ""
		for _, rest := range [][]byte{part(""), part("}"), part("openai"), part("+"), part(long), part(long + "y")} {
			group := GroupIn(partition, rest)
			if len(group) > MaxGroupLen || group[0] != '+' {
				t.Errorf("GroupIn(%.20q, %.20q) = %q", partition, rest, group)
			}
			if seen[group] {
				t.Errorf("%q is the group of two", group)
			}
			seen[group] = true
			of, behind := Partition(group)
			if first == "" {
				first = of
			}
			if of != first || of+behind != group {
				t.Errorf("Partition(%q) = %q, %q, want %q first", group, of, behind, first)
			}
			if len(partition) <= maxHalf && len(rest) <= maxHalf && Encoding(group) != string(partition)+string(rest) {
				t.Errorf("Encoding(%q) = %q", group, Encoding(group))
			}
		}
		if seen[first] {
			t.Errorf("two partitions are called %q", first)
		}
		seen[first] = true
	}
	for _, other := range []string{"", "2:ai", "=+3:a", "h00", "+", "+9:a", "+x:a", "+-1:a"} {
		if of, rest := Partition(other); of != other || rest != "" || Encoding(other) != other {
			t.Errorf("Partition(%q) = %q, %q", other, of, rest)
		}
	}
}
