package sqldb

import (
	"fmt"
	"regexp"
	"strings"
)

// Print returns all scripts for the database of a scheme, such as "postgres" or
// "mariadb", as one that its own client program can run on an empty schema. They
// note themselves in the history, so that Migrate finds nothing to do.
func (schema Schema) Print(scheme string) (string, error) {
	d, err := dialectOf(scheme)
	if err != nil {
		return "", err
	}
	scripts, err := schema.scripts(d)
	if err != nil {
		return "", err
	}
	m := &d.migrations
	var values map[string]string
	if m.printed != nil {
		values = m.printed(scheme)
	}
	var b strings.Builder
	b.WriteString(m.printHead)
	b.WriteString(schema.history(m.createHistory).Text + m.printEnd + "\n")
	for _, s := range scripts {
		fmt.Fprintf(&b, "\n-- %s\n", s.name)
		note := []string{literal(schema.history(m.dropHistory, s.name)),
			literal(schema.history(m.addHistory, s.name, s.checksum()))}
		for _, text := range append(s.statements(values), note...) {
			b.WriteString(text + m.printEnd + "\n")
		}
	}
	b.WriteString(m.printTail(schema))
	return b.String(), nil
}

var placeholder = regexp.MustCompile(`\?[0-9]*|[$:][0-9]+`)

// literal puts a query's arguments, which are plain words, into its text.
func literal(q Query) string {
	return placeholder.ReplaceAllStringFunc(q.Text, func(string) string {
		arg := q.Args[0]
		q.Args = q.Args[1:]
		return fmt.Sprintf("'%s'", arg)
	})
}
