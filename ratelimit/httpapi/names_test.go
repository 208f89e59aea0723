package httpapi

import (
	"slices"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
)

// TestCounterNames: a name reads back as the descriptor that it was made of.
func TestCounterNames(t *testing.T) {
	for name, d := range map[string][]descriptors.Entry{
		"shop|user=alice":               {{Key: "user", Value: "alice"}},
		"shop|user":                     {{Key: "user"}},
		"shop|user=a=b":                 {{Key: "user", Value: "a=b"}},
		"shop|a%3Db=c":                  {{Key: "a=b", Value: "c"}},
		"shop|user=%7C%25%20%C3%A9|b=/": {{Key: "user", Value: "|% é"}, {Key: "b", Value: "/"}},
	} {
		if got := descriptors.Name("shop", d); got != name {
			t.Errorf("%v is called %s, want %s", d, got, name)
		}
		domain, entries, err := parseName(name)
		if err != nil || domain != "shop" || !slices.Equal(entries, d) {
			t.Errorf("%s is read as %s %v, %v", name, domain, entries, err)
		}
	}
	for name, says := range map[string]string{
		"": "empty part", "shop": "no entry", "shop|": "empty part", "|user=a": "empty part", "shop|=a": "empty part",
		"shop||a": "empty part", "shop|a=%": "%25", "shop|a=%zz": `"%zz"`, "shop|a=%ff": "UTF-8",
	} {
		if _, _, err := parseName(name); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", name, err, says)
		}
	}
}

// FuzzParseName: what is accepted has one name, which reads back as the same.
func FuzzParseName(f *testing.F) {
	f.Add("shop|user=alice|route=%2Fv1")
	f.Add("a|b=%25%7C=")
	f.Fuzz(func(t *testing.T, text string) {
		domain, entries, err := parseName(text)
		if err != nil {
			return
		}
		name := descriptors.Name(domain, entries)
		again, same, err := parseName(name)
		if err != nil || again != domain || !slices.Equal(entries, same) {
			t.Fatalf("%q is %s %v, whose name %q is %s %v, %v", text, domain, entries, name, again, same, err)
		}
	})
}
