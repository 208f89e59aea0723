package sqlstore

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// migrationFiles are the scripts, in a folder for each dialect, named as Flyway
// would: V1__what_it_does.sql are applied once, in order; R__what_it_makes.sql
// after them, and again when they have changed. A line that holds only "/"
// separates statements, which are sent as they are.
//
//go:embed migrations
var migrationFiles embed.FS

// A script is one file.
type script struct {
	name    string
	version int // 0 if it is repeatable
	text    string
}

func (s script) repeatable() bool { return s.version == 0 }

// checksum is the SHA-256 of the text.
func (s script) checksum() string {
	sum := sha256.Sum256([]byte(s.text))
	return hex.EncodeToString(sum[:])
}

// statements splits the script and fills in ${NAME}s.
func (s script) statements(values map[string]string) []string {
	text := s.text
	for name, value := range values {
		text = strings.ReplaceAll(text, "${"+name+"}", value)
	}
	var all, lines []string
	for line := range strings.Lines(text + "\n/\n") {
		if strings.TrimSpace(line) != "/" {
			lines = append(lines, line)
			continue
		}
		if !blank(lines) {
			all = append(all, strings.TrimSpace(strings.Join(lines, "")))
		}
		lines = nil
	}
	return all
}

// blank tells whether there is nothing but comments.
func blank(lines []string) bool {
	return !slices.ContainsFunc(lines, func(line string) bool {
		line = strings.TrimSpace(line)
		return line != "" && !strings.HasPrefix(line, "--")
	})
}

var versionPattern = regexp.MustCompile(`^V([0-9]{1,6})__`)

// version is the number in a script's name, 0 if it has none.
func version(name string) int {
	m := versionPattern.FindStringSubmatch(name)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return 0
	}
	return n
}

// scripts are those of the dialect, in the order to apply them in.
func (d *dialect) scripts() []script {
	folder := path.Join("migrations", d.name)
	entries, err := migrationFiles.ReadDir(folder)
	if err != nil {
		panic(err) // they are part of the program
	}
	var all []script
	for _, e := range entries {
		text, err := migrationFiles.ReadFile(path.Join(folder, e.Name()))
		if err != nil {
			panic(err)
		}
		all = append(all, script{e.Name(), version(e.Name()), strings.ReplaceAll(string(text), "\r\n", "\n")})
	}
	slices.SortFunc(all, func(a, b script) int {
		if a.repeatable() != b.repeatable() {
			return b.version - a.version // the repeatable one last
		}
		if a.version != b.version {
			return a.version - b.version
		}
		return strings.Compare(a.name, b.name)
	})
	return all
}

// Print returns all scripts for the database of a scheme, such as "postgres" or
// "mariadb", as one that its own client program can run on an empty schema. They
// note themselves in RL_SCHEMA_HISTORY, so that Migrate finds nothing to do.
func Print(scheme string) (string, error) {
	for _, d := range dialects() {
		if slices.Contains(d.schemes, scheme) {
			return d.print(scheme), nil
		}
	}
	return "", fmt.Errorf("no database is called %q; want one of %s", scheme, strings.Join(schemes(), ", "))
}

func (d *dialect) print(scheme string) string {
	m := &d.migrations
	var values map[string]string
	if m.printed != nil {
		values = m.printed(scheme)
	}
	var b strings.Builder
	b.WriteString(m.printHead)
	b.WriteString(m.createHistory.text + m.printEnd + "\n")
	for _, s := range d.scripts() {
		fmt.Fprintf(&b, "\n-- %s\n", s.name)
		for _, text := range append(s.statements(values), literal(m.dropHistory.with(s.name)), literal(m.addHistory.with(s.name, s.checksum()))) {
			b.WriteString(text + m.printEnd + "\n")
		}
	}
	b.WriteString(m.printTail)
	return b.String()
}

var placeholder = regexp.MustCompile(`\?[0-9]*|[$:][0-9]+`)

// literal puts a query's arguments, which are plain words, into its text.
func literal(q query) string {
	return placeholder.ReplaceAllStringFunc(q.text, func(string) string {
		arg := q.args[0]
		q.args = q.args[1:]
		return fmt.Sprintf("'%s'", arg)
	})
}
