package yamlfile

import (
	"bytes"
	"slices"

	"go.yaml.in/yaml/v3"
)

// A List is the items of a large block sequence at the top of a file, as text: nodes of YAML take 30 times as much
// memory, so those of a part are made, used and dropped before the next ones.
type List struct {
	text  []byte // with all items
	parts []part
}

// A part is some items, from and below places in the text of a list, and the lines before them in the file.
type part struct{ from, to, lines int }

const (
	// large is the size, in bytes, of a file whose lists are split.
	large = 256 << 10
	// partBytes is the size of a part, or of its only item if that is larger.
	partBytes = 64 << 10
)

// Split takes the block sequences under the given keys at the top of a large file out of its text, which keeps its
// lines: the keys then have no values. It leaves in the text what is not written plainly enough, and all of a text that
// may have anchors.
func Split(text []byte, keys ...string) (rest []byte, lists map[string]*List) {
	if len(text) < large || bytes.ContainsRune(text, '&') {
		return text, nil
	}
	rest, lists = bytes.Clone(text), map[string]*List{}
	for at, line := 0, 0; at < len(text); {
		end := lineEnd(text, at)
		key, found := bytes.CutSuffix(bytes.TrimRight(text[at:end], " \r\n"), []byte(":"))
		at, line = end, line+1
		name := string(key)
		if !found || !slices.Contains(keys, name) {
			continue
		}
		if lists[name] != nil { // twice: the parser says so
			return text, nil
		}
		list, next := split(text, at, line)
		if list == nil {
			continue
		}
		for i := at; i < next; i++ {
			if rest[i] != '\n' {
				rest[i] = ' '
			}
		}
		lists[name] = list
		line += bytes.Count(text[at:next], []byte("\n"))
		at = next
	}
	return rest, lists
}

func lineEnd(text []byte, at int) int {
	if n := bytes.IndexByte(text[at:], '\n'); n >= 0 {
		return at + n + 1
	}
	return len(text)
}

// split splits the sequence that begins at a place, after so many lines. It returns where the sequence ends, and nil if
// there is no plain one.
func split(text []byte, at, lines int) (*List, int) {
	list, indent := &List{text: text}, -1
	begin, before := at, lines // of the part
	for at < len(text) {
		end := lineEnd(text, at)
		content := bytes.TrimLeft(text[at:end], " ")
		column := end - at - len(content)
		content = bytes.TrimRight(content, "\r\n")
		blank := len(content) == 0 || content[0] == '#'
		item := len(content) > 0 && content[0] == '-' && (len(content) == 1 || content[1] == ' ')
		switch {
		case blank:
		case indent < 0 && !item:
			return nil, 0
		case indent < 0:
			indent = column
		case column > indent || column == indent && item:
		case column == 0: // the next key, or a document
			list.parts = append(list.parts, part{begin, at, before})
			return list, at
		default:
			return nil, 0 // the parser says what is wrong
		}
		if item && column == indent && at-begin >= partBytes {
			list.parts = append(list.parts, part{begin, at, before})
			begin, before = at, lines
		}
		at, lines = end, lines+1
	}
	if indent < 0 {
		return nil, 0
	}
	list.parts = append(list.parts, part{begin, at, before})
	return list, at
}

// Each calls use with the items of each part, as a sequence, until the text stops to be YAML.
func (l *List) Each(use func(items *yaml.Node)) (wrong *Error) {
	for i := 0; i < len(l.parts); i++ {
		p, first := l.parts[i], i
		text := l.text[p.from:p.to]
		items, err := decodeItems(text)
		// A text in quotes may go on in the next part, where a line looks like an item.
		for more := 1; err != nil && first+more < 2*len(l.parts); more *= 2 {
			last := min(first+more, len(l.parts)-1)
			joined := l.text[p.from:l.parts[last].to]
			if again, bad := decodeItems(joined); bad == nil {
				items, err, i = again, nil, last
			} else if more == 1 {
				text, err = joined, bad // what is wrong may show in the next item only
			}
		}
		switch {
		case err != nil:
			wrong = explain(text, err)
			wrong.Line += p.lines
			return wrong
		case items != nil:
			shift(items, p.lines)
			use(items)
		}
	}
	return nil
}

// decodeItems returns the sequence in a text, or nil if the text has no sequence.
func decodeItems(text []byte) (*yaml.Node, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil || len(document.Content) == 0 {
		return nil, err
	}
	return document.Content[0], nil
}

// shift moves the lines of a node and all below it.
func shift(n *yaml.Node, lines int) {
	n.Line += lines
	for _, c := range n.Content {
		shift(c, lines)
	}
}
