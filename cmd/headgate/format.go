package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
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
	for _, v := range e.values {
		if v == text {
			e.value = text
			return nil
		}
	}
	return fmt.Errorf("must be %s, not %q", oneOf(e.values), text)
}

func oneOf(values []string) string {
	return strings.Join(values[:len(values)-1], ", ") + " or " + values[len(values)-1]
}

// defineEnum adds a flag that has one of some values, which shells can complete.
func defineEnum(cmd *cobra.Command, name, usage string, values ...string) *enum {
	e := &enum{values, values[0]}
	cmd.Flags().Var(e, name, usage)
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	return e
}

// A format is how a command prints its answer.
type format struct{ *enum }

func (f *format) define(cmd *cobra.Command) {
	f.enum = defineEnum(cmd, "format", "how to print the answer", "text", "json")
}

func (f *format) json() bool { return f.enum != nil && f.value == "json" }

// writer returns where the text of an answer goes: to out, unless the answer is printed there as JSON.
func (f *format) writer(out io.Writer, answer any) io.Writer {
	if !f.json() {
		return out
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	_ = e.Encode(answer) // fails only if the reader is gone
	return io.Discard
}
