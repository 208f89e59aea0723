package yamlfile

import (
	"strings"
	"testing"
)

// TestTheLineThatIsNotYAML is named, not the one where its block begins.
func TestTheLineThatIsNotYAML(t *testing.T) {
	long := "a:\n" + strings.Repeat("  - {b: c,\n     d: e}\n", 1000)
	for _, c := range []struct {
		name, text string
		line       int
		says       string
	}{
		{"a key too far left", "domain: shop\ndescriptors:\n  - key: tenant\n  rate_limit: {unit: minute}\n", 4, "indented"},
		{"a key too far right", "domain: shop\n  descriptors:\n", 2, "indented"},
		{"a tab", "domain: shop\ndescriptors:\n\t- key: tenant\n", 3, "indent with spaces"},
		{"a tab after spaces", "domain: shop\ndescriptors:\n  \t- key: tenant\n", 3, "indent with spaces"},
		{"an open brace", "domain: shop\ndescriptors:\n  - {key: a,\n     value: b}\n  - {key: c\n  - key: d\n", 5,
			"did not find expected ',' or '}'"},
		{"an open quote", "domain: shop\ndescriptors:\n  - key: \"a\n", 3, "unexpected end of stream"},
		{"an unknown anchor", "domain: shop\ndescriptors:\n  - *a\n", 3, "unknown anchor 'a'"},
		{"the second document", "domain: shop\n---\n- a\nb: c\n", 4, "indented"},
		{"bytes", "domain: shop\nx: \xff\n", 2, "UTF-8"},
		{"the end of a long text", long + " b\n", 2002, "indented"},
		{"CRLF", "domain: shop\r\ndescriptors:\r\n  - key: tenant\r\n  rate_limit: 1\r\n", 4, "indented"},
	} {
		_, _, wrong := Decode([]byte(c.text))
		if wrong == nil {
			t.Fatalf("%s: it is YAML", c.name)
		}
		line, message := wrong.Line, wrong.Message
		if line != c.line || !strings.HasPrefix(message, "not valid YAML: ") || !strings.Contains(message, c.says) ||
			strings.Contains(message, "line ") && !strings.Contains(message, "the line") {
			t.Errorf("%s: %d: %s, want line %d and %q", c.name, line, message, c.line, c.says)
		}
	}
}
