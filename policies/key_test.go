package policies

import (
	"strings"
	"testing"
)

func TestKeysHaveOneSpelling(t *testing.T) {
	for given, want := range map[string]string{
		"user:alice":                   "user:alice",
		"user:123|route:/v1/pay":       "user:123|route:/v1/pay",
		"user:a b":                     "user:a%20b",
		"user:%61":                     "user:a",
		"user:%c3%a9":                  "user:%C3%A9",
		"user:é":                       "user:%C3%A9",
		"user:%7c":                     "user:%7C",
		"..%2f..%2fetc":                "../../etc",
		"*":                            "*",
		"user:*":                       "user:%2A",
		"a#b":                          "a%23b",
		"\x00\n":                       "%00%0A",
		strings.Repeat("a", 255):       strings.Repeat("a", 255),
		"h#" + strings.Repeat("0", 64): "h%23" + strings.Repeat("0", 64),
	} {
		if got, err := Normalize(given); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", given, got, err, want)
		}
	}
	for given, want := range map[string]string{
		"":                           "the key is empty",
		"a%":                         "write %25 for a percent sign",
		"a%2":                        "write %25 for a percent sign",
		"a%zzb":                      "at byte 1",
		strings.Repeat("a", 1<<16+1): "more than 65536",
	} {
		if got, err := Normalize(given); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %q, %v; want %q", given, got, err, want)
		}
	}
}

func TestLongKeysEndInTheirHash(t *testing.T) {
	seen := map[string]string{}
	for _, given := range []string{
		strings.Repeat("a", 256), strings.Repeat("a", 257), strings.Repeat("é", 200), "x" + strings.Repeat("é", 200),
		"xx" + strings.Repeat("é", 200),
		strings.Repeat("a", 1<<16),
	} {
		got, err := Normalize(given)
		if err != nil || len(got) > MaxKey || !strings.Contains(got, "#") {
			t.Fatalf("%.20q: %q, %v", given, got, err)
		}
		if again, err := Normalize(got); again != got || err != nil {
			t.Errorf("%q becomes %q, %v", got, again, err)
		}
		start, _, _ := strings.Cut(got, "#")
		if len(start) > 2 && strings.Contains(start[len(start)-2:], "%") {
			t.Errorf("%q has half an escape", start)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%.20q and %.20q are both %q", given, other, got)
		}
		seen[got] = given
	}
}

func template(t testing.TB, text string, entries ...string) *Template {
	t.Helper()
	made, err := ParseTemplate(text, entries)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func of(values ...string) func(int) string { return func(i int) string { return values[i] } }

func TestTemplatesMakeNormalKeys(t *testing.T) {
	tmpl := template(t, "user:{user}|route:{path}", "user", "path")
	for _, c := range []struct{ user, path, want string }{
		{"123", "/v1/pay", "user:123|route:/v1/pay"},
		{"a|route:/x", "/", "user:a%7Croute:/x|route:/"},
		{"*", "%", "user:%2A|route:%25"},
		{"", "", "user:|route:"},
	} {
		if got := string(tmpl.Append(nil, of(c.user, c.path))); got != c.want {
			t.Errorf("%q, %q: %q, want %q", c.user, c.path, got, c.want)
		}
	}
	if got := string(template(t, "all").Append(nil, nil)); got != "all" {
		t.Errorf("a template without values makes %q", got)
	}
	long := tmpl.Append(nil, of(strings.Repeat("x", 1<<20), "/"))
	if len(long) > MaxKey {
		t.Errorf("a long value makes a key of %d bytes", len(long))
	}
}

func TestBadTemplatesAreRejected(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "empty",
		"user:{name}":            "the entry {name}, which the rule has not; it has {user}, {twice}, {twice}",
		"user:{user":             "a { without }",
		"user:{user}{user}":      "one {entry} in each part",
		"a||b":                   "empty part",
		"user:{twice}":           "twice",
		"*":                      "'*'",
		"a b":                    "' '",
		"é{user}":                "'é'",
		"user}":                  "'}'",
		strings.Repeat("a", 256): "256 bytes",
	} {
		if _, err := ParseTemplate(text, []string{"user", "twice", "twice"}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

// FuzzTemplate: a template that is accepted makes a key that is its own normal form, within
// bounds, different for different values, and never that of the default policy. Or it makes no key.
func FuzzTemplate(f *testing.F) {
	f.Add("user:{a}|route:{b}", "x", "y", "x|route:y", "")
	f.Add("{a}", "*", "", "%2A", "")
	f.Add("{a}|{b}", "..%2f", "#", strings.Repeat("é", 300), "|")
	f.Add("{b}", "0", "", "0", "0")
	f.Fuzz(func(t *testing.T, text, a, b, c, d string) {
		if len(a)+len(b)+len(c)+len(d) > 10_000 {
			return
		}
		tmpl, err := ParseTemplate(text, []string{"a", "b"})
		if err != nil {
			return
		}
		key := string(tmpl.Append(nil, of(a, b)))
		if key == "" { // an entry alone, without a value: no policy can have this key
			return
		}
		if normal, err := Normalize(key); err != nil || normal != key || len(key) > MaxKey || key == Default {
			t.Fatalf("%q makes %q, whose normal form is %q, %v", text, key, normal, err)
		}
		same := (a == c || !strings.Contains(text, "{a}")) && (b == d || !strings.Contains(text, "{b}"))
		if other := string(tmpl.Append(nil, of(c, d))); (other == key) != same {
			t.Fatalf("%q makes %q of %q, %q and %q of %q, %q", text, key, a, b, other, c, d)
		}
	})
}

func FuzzNormalize(f *testing.F) {
	for _, s := range []string{"user:alice", "a%2fb|c", "..%2f", strings.Repeat("é", 200)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, given string) {
		key, err := Normalize(given)
		if err != nil {
			return
		}
		again, err := Normalize(key)
		if err != nil || again != key || len(key) > MaxKey ||
			strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Fatalf("%q becomes %q, and that %q, %v", given, key, again, err)
		}
	})
}
