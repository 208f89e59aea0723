package yamlfile

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// An Error says what is wrong in a line.
type Error struct {
	Line    int
	Message string
}

// Decode returns the first two documents of a text, each nil if the text has no such document. A file should have
// one: the second is for the error that says where it begins.
func Decode(text []byte) (first, second *yaml.Node, wrong *Error) {
	documents, err := parse(text)
	if err != nil {
		return nil, nil, explain(text, err)
	}
	return documents[0], documents[1], nil
}

// parse returns what there is of the first two documents of a text.
func parse(text []byte) (documents [2]*yaml.Node, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for i := range documents {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return documents, err
		}
		documents[i] = &document
	}
	return documents, nil
}

var (
	prefix = regexp.MustCompile(`^yaml: (?:line \d+: )?`)
	// indented are what the YAML package says when a line begins in a wrong column.
	indented = regexp.MustCompile(
		`mapping values are not allowed|did not find expected (key|'-' indicator|<document start>)`)
)

// explain finds the line where text stops to be YAML. err is what the YAML package says about it,
// which often names the line before that of the enclosing block.
func explain(text []byte, err error) *Error {
	lines := bytes.SplitAfter(text, []byte("\n"))
	// What is wrong stays so, whatever follows. A text that ends earlier is right, or wrong otherwise.
	at := sort.Search(len(lines)-1, func(n int) bool {
		_, short := parse(bytes.Join(lines[:n+1], nil))
		return short != nil && short.Error() == err.Error()
	})
	message := "not valid YAML: " + strings.TrimPrefix(err.Error(), prefix.FindString(err.Error()))
	switch wrong := strings.TrimLeft(string(lines[at]), " "); {
	case strings.HasPrefix(wrong, "\t"):
		message += "; indent with spaces, not with tabs"
	case indented.MatchString(message):
		message += "; is the line indented as it should be?"
	}
	return &Error{at + 1, message}
}
