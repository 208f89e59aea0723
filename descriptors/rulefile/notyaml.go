package rulefile

import (
	"bytes"
	"regexp"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

var (
	yamlError = regexp.MustCompile(`^yaml: (?:line \d+: )?`)
	// yamlIndented are what the YAML package says when a line begins in a wrong column.
	yamlIndented = regexp.MustCompile(`mapping values are not allowed|did not find expected (key|'-' indicator|<document start>)`)
)

// NotYAML returns the line where text stops to be YAML, and what is wrong there. err is what the
// YAML package says about it, which often names the line before that of the enclosing block.
func NotYAML(text []byte, err error) (line int, message string) {
	lines := bytes.SplitAfter(text, []byte("\n"))
	// What is wrong stays so, whatever follows. A text that ends earlier is right, or wrong otherwise.
	at := sort.Search(len(lines)-1, func(n int) bool {
		short := yamlErrorOf(bytes.Join(lines[:n+1], nil))
		return short != nil && short.Error() == err.Error()
	})
	message = "not valid YAML: " + strings.TrimPrefix(err.Error(), yamlError.FindString(err.Error()))
	switch wrong := strings.TrimLeft(string(lines[at]), " "); {
	case strings.HasPrefix(wrong, "\t"):
		message += "; indent with spaces, not with tabs"
	case yamlIndented.MatchString(message):
		message += "; is the line indented as it should be?"
	}
	return at + 1, message
}

// yamlErrorOf returns what is wrong in the first two documents of a text.
func yamlErrorOf(text []byte) (err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for n := 0; n < 2 && err == nil; n++ {
		var document yaml.Node
		err = decoder.Decode(&document)
	}
	return err
}
