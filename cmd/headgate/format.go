package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/kit/settings"
	"github.com/headgate-rls/headgate/internal/kit/spell"
)

// An enum is a flag that has one of a few values. Its first value is the default.
type enum struct {
	values []string
	value  string
}

// String, Set and Type implement pflag.Value.
func (e *enum) String() string { return e.value }
func (e *enum) Type() string   { return strings.Join(e.values, "|") }

func (e *enum) Set(text string) error {
	if slices.Contains(e.values, text) {
		e.value = text
		return nil
	}
	return fmt.Errorf("must be %s, not %q", spell.OneOf(e.values), text)
}

// defineEnum adds a flag that has one of some values, which shells can complete.
func defineEnum(cmd *cobra.Command, name, usage string, values ...string) *enum {
	e := &enum{values, values[0]}
	cmd.Flags().Var(e, name, usage)
	complete(cmd, name, values...)
	return e
}

// rfc3339 is the format of flags that are times, with a fraction of a second or without.
var rfc3339 = []string{time.RFC3339Nano}

// complete makes shells complete a flag with these values. Cobra returns an error only if the flag is unknown.
func complete(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err)
	}
}

// completeSettings makes shells complete the settings that take one of several words.
func completeSettings(cmd *cobra.Command) {
	for _, s := range config.Settings().Rows {
		if len(s.Words) > 0 {
			complete(cmd, s.Name, s.Words...)
		}
	}
	completeBackend(cmd)
}

// completeBackend makes shells complete --backend with the schemes of the stores.
func completeBackend(cmd *cobra.Command) {
	var urls []string
	for _, kind := range backends.Kinds() {
		for _, scheme := range kind.Schemes {
			urls = append(urls, scheme+"://")
		}
	}
	slices.Sort(urls)
	_ = cmd.RegisterFlagCompletionFunc("backend", cobra.FixedCompletions(urls, cobra.ShellCompDirectiveNoSpace))
}

// A format is how a command prints its answer.
type format struct{ *enum }

// defineFormat adds --format: text, json, or others that the command has.
func defineFormat(cmd *cobra.Command, others ...string) *format {
	formats := append([]string{"text", "json"}, others...)
	return &format{defineEnum(cmd, "format", "how to print the answer", formats...)}
}

func (f *format) json() bool { return f.value == "json" }

// writer returns where the text of an answer goes: to out, unless the answer is printed there as JSON.
func (f *format) writer(out io.Writer, answer any) io.Writer {
	if !f.json() {
		return out
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	_ = e.Encode(answer) // answerWriter keeps the error
	return io.Discard
}

// An answerWriter keeps the first error of writing, so that no command has to look at it, and none loses its answer
// in silence.
type answerWriter struct {
	io.Writer
	err error
}

func (w *answerWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.err = cmp.Or(w.err, err)
	return n, err
}

// A lister prints answers one by one: as lines of text, or as the elements of a JSON array, one per line.
type lister struct {
	text  io.Writer // for the lines; discards them if the answers are JSON
	json  io.Writer // for the array; nil if the answers are text
	begun bool
}

func (f *format) list(out io.Writer) *lister {
	if f.json() {
		return &lister{text: io.Discard, json: out}
	}
	return &lister{text: out}
}

// write adds an answer to the JSON array. It does nothing if the answers are text.
func (l *lister) write(answer any) error {
	if l.json == nil {
		return nil
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	before := ",\n"
	if !l.begun {
		before = "[\n"
	}
	l.begun = true
	_, err = fmt.Fprintf(l.json, "%s%s", before, text)
	return err
}

func (l *lister) end() error {
	if l.json == nil {
		return nil
	}
	text := "\n]\n"
	if !l.begun {
		text = "[]\n"
	}
	_, err := io.WriteString(l.json, text)
	return err
}

// inColumns prints rows below heads, with tabs between the cells, or none if there are no rows.
func inColumns[T any](out io.Writer, none, heads string, rows []T, write func(w io.Writer, row *T)) error {
	if len(rows) == 0 {
		fmt.Fprintln(out, none)
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, heads)
	for i := range rows {
		write(w, &rows[i])
	}
	return w.Flush()
}

// instant returns a time in UTC, as the log has it.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// oneWord returns a name, in quotes unless it is one word. Clients choose their names, and must not
// forge lines or colour the terminal with them.
func oneWord(name string) string {
	if quoted := strconv.QuoteToASCII(name); strings.Contains(name, " ") || quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

// harmless returns a text that may have names in it, in quotes if they would forge lines or colour the terminal.
func harmless(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.QuoteToASCII(text)
	}
	return text
}

// isTerminal reports whether people read what is written to out.
func isTerminal(out io.Writer) bool {
	if answers, ok := out.(*answerWriter); ok {
		out = answers.Writer
	}
	return settings.IsTerminal(out)
}
