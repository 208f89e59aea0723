package descriptors

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/spell"
)

// maxPattern bounds a regular expression, in bytes.
const maxPattern = 1000

// A pathClass is a kind of path, in order of precedence.
type pathClass uint8

const (
	classOperation pathClass = iota
	classExact
	classTemplate
	classPrefix
	classRegex
	classAny
)

var classNames = []string{"operation", "exact", "template", "prefix", "regex", "any"}

func (c pathClass) String() string { return classNames[c] }

// A pathRule says which paths, or SOAP operations, a resource is for.
type pathRule struct {
	class  pathClass
	text   string // as written; empty for any
	name   string // path or operation in normal form, without the class's marks
	re     *regexp.Regexp
	prefix string // what every match of re starts with
	start  bool   // re matches at the start of a path only
}

// parsePath reads a path as rules write it: see [ResourceSpec]. Errors say
// what to write instead.
func (s *spot) parsePath(text string) pathRule {
	if text == "" || text == "*" {
		return pathRule{class: classAny}
	}
	p, path := pathRule{class: classExact, text: text}, text
	if strings.HasPrefix(path, "~") {
		return s.pattern(p, path[1:])
	}
	if start, ok := strings.CutSuffix(path, "/*"); ok {
		p.class, path = classPrefix, start
	}
	switch {
	case text[0] != '/':
		s.errorf("path", "path %q must start with a slash, or be ~ and a regular expression, or *", spell.Short(text))
	case strings.Contains(path, "*"):
		s.errorf("path", "path %q: a * stands for the rest of the path, so it may only come last and after a slash; "+
			"elsewhere use {name} for a segment, or ~ and a regular expression", spell.Short(path))
	case path == "": // of "/*"
	default:
		if p.name = normalPath(path, false); countSegments(p.name) != countSegments(path) {
			s.errorf("path", "path %q is compared without empty, \".\" and \"..\" segments and without a slash at the end; "+
				"write it as %s", spell.Short(path), p.name)
		} else if strings.ContainsAny(p.name, "{}") {
			if p.class == classExact {
				p.class = classTemplate
			}
			s.checkParams(&p)
		}
	}
	return p
}

func countSegments(path string) int {
	if path == "/" {
		return 0
	}
	return strings.Count(path, "/")
}

// eachSegment calls f with the segments of the path, from the left.
func (p *pathRule) eachSegment(f func(segment string)) {
	for rest := p.name; rest != ""; {
		var segment string
		segment, rest = cutSegment(rest)
		f(segment)
	}
}

// params returns the parameter's name for each segment of the path that is one,
// "" for the others; nil if the path cannot have any.
func (p *pathRule) params() []string {
	if p.class != classTemplate && p.class != classPrefix {
		return nil
	}
	var params []string
	p.eachSegment(func(segment string) {
		name, _ := paramName(segment)
		params = append(params, name)
	})
	return params
}

// checkParams says which parameters cannot be.
func (s *spot) checkParams(p *pathRule) {
	var params []string
	p.eachSegment(func(segment string) {
		name, ok := paramName(segment)
		switch {
		case ok && slices.Contains(params, name):
			s.errorf("path", "path %q has two parameters called %s", spell.Short(p.name), name)
		case !ok && strings.ContainsAny(segment, "{}"):
			s.errorf("path", "path segment %q: a {parameter} is a whole segment, and has a name", spell.Short(segment))
		}
		params = append(params, name)
	})
}

// paramName returns the name of a segment that is a parameter.
func paramName(segment string) (string, bool) {
	if len(segment) < 3 || segment[0] != '{' || segment[len(segment)-1] != '}' {
		return "", false
	}
	name := segment[1 : len(segment)-1]
	return name, !strings.ContainsAny(name, "{}")
}

// pattern reads a regular expression for paths.
func (s *spot) pattern(p pathRule, text string) pathRule {
	p.class, p.name = classRegex, text
	if text == "" || len(text) > maxPattern {
		s.errorf("path", "a path's regular expression has 1 to %d bytes, not %d", maxPattern, len(text))
		return p
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err == nil {
		p.re, err = compile(text)
	}
	if err != nil {
		s.errorf("path", "path: %v", err)
		return p
	}
	p.prefix, p.start = literalPrefix(parsed)
	return p
}

// compile compiles a regular expression in which a dot is any character: clients can send newlines in paths and
// queries, and one would otherwise lead around ^/files/.+$.
func compile(text string) (*regexp.Regexp, error) {
	if _, err := syntax.Parse(text, syntax.Perl); err != nil {
		return nil, err // of text alone
	}
	return regexp.Compile("(?s)" + text)
}

// literalPrefix returns the text that every match of re starts with, and
// whether matches are at the start of a text only.
func literalPrefix(re *syntax.Regexp) (prefix string, start bool) {
	parts := []*syntax.Regexp{re}
	if re.Op == syntax.OpConcat {
		parts = re.Sub
	}
	if parts[0].Op == syntax.OpBeginText {
		parts, start = parts[1:], true
	}
	if len(parts) > 0 && parts[0].Op == syntax.OpLiteral && parts[0].Flags&syntax.FoldCase == 0 {
		prefix = string(parts[0].Rune)
	}
	return prefix, start
}

// foldCase has the rule match paths in any case that are folded.
func (p *pathRule) foldCase() {
	switch p.class {
	case classExact, classTemplate, classPrefix:
		p.name = fold(p.name)
	case classRegex:
		p.re = regexp.MustCompile("(?i)" + p.re.String())
	}
}

// shape is the path without the names of parameters.
func (p *pathRule) shape() string {
	if p.class != classTemplate && p.class != classPrefix {
		return p.name
	}
	var b strings.Builder
	p.eachSegment(func(segment string) {
		if _, ok := paramName(segment); ok {
			segment = "{}"
		}
		b.WriteString("/" + segment)
	})
	return b.String()
}
