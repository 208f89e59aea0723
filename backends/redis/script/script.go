package script

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

//go:embed *.lua
var parts embed.FS

// The scripts.
var (
	Common = assemble("common.lua") // windows and buckets; it answers [Declined] where it cannot decide
	Full   = assemble("full.lua")   // everything
	Envoy  = assemble("envoy.lua")  // layout=envoy
)

// MostKeys is how many keys [Common] takes at once: they have to fit on Lua's stack.
const MostKeys = 4000

// Declined is the reply of [Common] to a slice that Full has to decide. Nothing was written.
const Declined = ""

// A Script is what is sent to Redis, and its name there.
type Script struct {
	Text, SHA string

	lines []place // by line of Text
}

type place struct {
	part string
	line int
}

func (p place) String() string { return fmt.Sprintf("%s:%d", p.part, p.line) }

// assemble puts the script together whose first part is root. A mistake in a part is one in the program, and panics.
func assemble(root string) *Script {
	s := &Script{}
	a := &assembler{Script: s, values: constants(read("constants.lua"))}
	a.include(root, nil)
	s.Text = strings.Join(a.text, "\n")
	sum := sha1.Sum([]byte(s.Text))
	s.SHA = hex.EncodeToString(sum[:])
	return s
}

func read(part string) string {
	text, err := parts.ReadFile(part)
	if err != nil {
		panic(err)
	}
	return string(text)
}

type assembler struct {
	*Script
	text   []string
	values map[string]string
}

const includes = "--@include "

// include adds a part, without comments and indentation. within are the parts that include it.
func (a *assembler) include(part string, within []string) {
	for _, p := range within {
		if p == part {
			panic(part + " includes itself")
		}
	}
	for i, line := range strings.Split(read(part), "\n") {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, includes); ok {
			a.include(name, append(within[:len(within):len(within)], part))
			continue
		}
		at := place{part, i + 1}
		if line = a.code(line, at); line != "" {
			a.text = append(a.text, line)
			a.lines = append(a.lines, at)
		}
	}
}

// code returns a line without its comment and with the values of constants.
func (a *assembler) code(line string, at place) string {
	var b strings.Builder
	for line != "" {
		t := token(line)
		line = line[len(t):]
		switch value, ok := a.values[t]; {
		case strings.HasPrefix(t, "--"):
		case ok:
			b.WriteString(value)
		case isConstant(t) && t != "KEYS" && t != "ARGV":
			panic(fmt.Sprintf("%v: unknown constant %s", at, t))
		default:
			b.WriteString(t)
		}
	}
	return strings.TrimSpace(b.String())
}

// token returns what a line of Lua begins with: a string, a comment, a word or a number, or one byte of anything else.
// Every program that links this package puts its scripts together when it starts, so this is no regular expression.
func token(line string) string {
	switch c := line[0]; {
	case c == '\'' || c == '"':
		for i := 1; i < len(line); i++ {
			switch line[i] {
			case '\\':
				i++
			case c:
				return line[:i+1]
			}
		}
		return line
	case strings.HasPrefix(line, "--"):
		return line
	case isWord(c):
		n := 1
		for n < len(line) && isWord(line[n]) {
			n++
		}
		return line[:n]
	}
	return line[:1]
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// isConstant reports whether t is written as names of constants are, and KEYS and ARGV.
func isConstant(t string) bool {
	return t[0] >= 'A' && t[0] <= 'Z' && strings.ToUpper(t) == t
}

// constants reads lines NAME = VALUE.
func constants(text string) map[string]string {
	values := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "--")
		if name, value, ok := strings.Cut(line, "="); ok {
			values[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return values
}

var lineOf = regexp.MustCompile(`user_script:(\d+)`)

// Locate returns the text of an error of Redis with the part and its line in place of the line of the script.
func (s *Script) Locate(text string) string {
	return lineOf.ReplaceAllStringFunc(text, func(found string) string {
		n, err := strconv.Atoi(found[len("user_script:"):])
		if err != nil || n < 1 || n > len(s.lines) {
			return found
		}
		return s.lines[n-1].String()
	})
}
