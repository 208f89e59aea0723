package script

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestSizes: what is sent when a server does not know the script, and what a person has to read at once.
func TestSizes(t *testing.T) {
	for name, c := range map[string]struct {
		script *Script
		most   int // bytes
	}{"common": {Common, 9 << 10}, "full": {Full, 57 << 10}, "envoy": {Envoy, 8 << 10}} {
		if n := len(c.script.Text); n > c.most {
			t.Errorf("script %s has %d bytes as sent, more than %d", name, n, c.most)
		}
	}
	for _, name := range partNames(t) {
		if n := strings.Count(read(name), "\n"); n > 300 {
			t.Errorf("%s has %d lines, more than 300", name, n)
		}
	}
}

// TestHeads: the head of a part names all that the part uses of what others make, and nothing else.
func TestHeads(t *testing.T) {
	for _, name := range partNames(t) {
		if name == "constants.lua" {
			continue
		}
		text := read(name)
		if !regexp.MustCompile(`^-- [A-Z ]+[:.]? `).MatchString(text + " ") {
			t.Errorf("%s does not begin with its name and what it is for", name)
		}
		if strings.Contains(text, includes+"prelude.lua") {
			continue // a script: it has all
		}
		head := regexp.MustCompile(`(?m)^-- uses: (.*(?:\n--   .*)*)$`).FindStringSubmatch(text)
		if head == nil {
			t.Errorf("%s has no line \"-- uses: …\"", name)
			continue
		}
		says := slices.Sorted(slices.Values(word.FindAllString(head[1], -1)))
		if uses := free(text); !slices.Equal(says, uses) {
			t.Errorf("%s says that it uses\n%v\nbut it uses\n%v", name, says, uses)
		}
	}
}

// TestConstantsAreUsed: nobody has to read about what is not there.
func TestConstantsAreUsed(t *testing.T) {
	var all strings.Builder
	for _, name := range partNames(t) {
		if name != "constants.lua" {
			all.WriteString(withoutComments(read(name)))
		}
	}
	for name := range constants(read("constants.lua")) {
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(all.String()) {
			t.Errorf("constants.lua has %s, which no part uses", name)
		}
	}
}

// TestPartsAreUsed: each part is in some script.
func TestPartsAreUsed(t *testing.T) {
	used := map[string]bool{"constants.lua": true}
	for _, s := range []*Script{Common, Full, Envoy} {
		for _, l := range s.lines {
			used[l.part] = true
		}
	}
	for _, name := range partNames(t) {
		if !used[name] {
			t.Errorf("%s is in no script", name)
		}
	}
}

// TestScriptsCostLittleToMake: every command of headgate puts them together when it starts. Allocations stand for time,
// which depends on what else the machine does: tokens by a regular expression took 36,000, and twenty times as long.
func TestScriptsCostLittleToMake(t *testing.T) {
	if n := testing.AllocsPerRun(3, func() { assemble("full.lua") }); n > 12_000 {
		t.Errorf("the script takes %.0f allocations", n)
	}
}

func TestLocate(t *testing.T) {
	lines := strings.Split(Full.Text, "\n")
	n := slices.Index(lines, "local function load_state(k, algorithm)") + 1
	at := slices.Index(strings.Split(read("states.lua"), "\n"), "local function load_state(k, algorithm)") + 1
	if n == 0 || at == 0 {
		t.Fatal("load_state is not where the test looks for it")
	}
	place := Full.lines[n-1]
	if place.part != "states.lua" || place.line != at {
		t.Errorf("line %d is %v, want states.lua:%d", n, place, at)
	}
	got := Full.Locate("ERR user_script:1: x script: abc, on @user_script:1. user_script:999999:")
	if want := "ERR prelude.lua:4: x script: abc, on @prelude.lua:4. user_script:999999:"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestMistakesInParts are found when a script is put together.
func TestMistakesInParts(t *testing.T) {
	a := &assembler{Script: &Script{}, values: map[string]string{"ONE": "1"}}
	for line, want := range map[string]string{
		"x = ONE -- ONE, TWO": "x = 1",
		"f('ONE', \"TWO\")":   "f('ONE', \"TWO\")",
		"KEYS[ONE], ARGV[2]":  "KEYS[1], ARGV[2]",
	} {
		if got := a.code(line, place{}); got != want {
			t.Errorf("%q becomes %q, want %q", line, got, want)
		}
	}
	defer func() {
		if got := recover(); got != "part.lua:7: unknown constant TWO" {
			t.Errorf("an unknown constant: %v", got)
		}
	}()
	a.code("x = TWO", place{"part.lua", 7})
}

func partNames(t *testing.T) (names []string) {
	list, err := parts.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func withoutComments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		for line = strings.TrimSuffix(line, "\n"); line != ""; {
			t := token(line)
			line = line[len(t):]
			if !strings.HasPrefix(t, "--") {
				b.WriteString(t)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

var (
	word     = regexp.MustCompile(`[A-Za-z_]\w*`)
	declared = regexp.MustCompile(`\blocal function (\w+)|\blocal ([\w, ]+)|\bfor ([\w, ]+?) (?:=|in) `)
	params   = regexp.MustCompile(`\bfunction ?[\w.]*\(([\w, .]*)\)`)
	fields   = regexp.MustCompile(`[.:]\w+`)
	tables   = regexp.MustCompile(`\{[^{}]*\}`)
	named    = regexp.MustCompile(`\w+ = `)
	literals = regexp.MustCompile(`'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"`)
)

var keywords = strings.Fields("and break do else elseif end false for function if in local nil not or repeat return " +
	"then true until while")

// free returns the names that a part uses and does not declare, but for constants. It knows no blocks: a name that is
// declared anywhere in the part is the part's own.
func free(text string) []string {
	text = literals.ReplaceAllString(withoutComments(text), "0")
	own := map[string]bool{}
	for _, m := range slices.Concat(declared.FindAllStringSubmatch(text, -1), params.FindAllStringSubmatch(text, -1)) {
		for _, list := range m[1:] {
			for _, name := range word.FindAllString(list, -1) {
				own[name] = true
			}
		}
	}
	text = fields.ReplaceAllString(text, "")
	text = tables.ReplaceAllStringFunc(text, func(t string) string { return named.ReplaceAllString(t, "") })
	uses := map[string]bool{}
	for _, name := range word.FindAllString(text, -1) {
		if !own[name] && !slices.Contains(keywords, name) && !isConstant(name) {
			uses[name] = true
		}
	}
	return slices.Sorted(maps.Keys(uses))
}

func TestMostKeysFitOnTheStack(t *testing.T) {
	if got := constants(read("constants.lua"))["MOST"]; got != strconv.Itoa(MostKeys) {
		t.Errorf("MOST is %s, and MostKeys %d", got, MostKeys)
	}
}
