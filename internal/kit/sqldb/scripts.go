package sqldb

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

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

// blank reports whether there is nothing but comments.
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

// scripts are those for a dialect, in the order to apply them in.
func (schema Schema) scripts(d *Dialect) ([]script, error) {
	folder := path.Join("migrations", d.Name)
	entries, err := fs.ReadDir(schema.Files, folder)
	if err != nil {
		return nil, err
	}
	var all []script
	for _, e := range entries {
		text, err := fs.ReadFile(schema.Files, path.Join(folder, e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, script{e.Name(), version(e.Name()), strings.ReplaceAll(string(text), "\r\n", "\n")})
	}
	slices.SortFunc(all, inOrder)
	return all, nil
}

// inOrder puts versions before what is repeatable.
func inOrder(a, b script) int {
	if a.repeatable() != b.repeatable() {
		return b.version - a.version
	}
	if a.version != b.version {
		return a.version - b.version
	}
	return strings.Compare(a.name, b.name)
}
