package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate-rls/headgate/internal/app/config"
)

// leaves returns the commands that do something, by their names without "headgate".
func leaves(cmd *cobra.Command) map[string]*cobra.Command {
	all := map[string]*cobra.Command{}
	for _, sub := range cmd.Commands() {
		if sub.HasSubCommands() {
			for name, leaf := range leaves(sub) {
				all[name] = leaf
			}
			continue
		}
		all[strings.TrimPrefix(sub.CommandPath(), "headgate ")] = sub
	}
	return all
}

// unformatted are the commands whose output has a form of its own: a log, a configuration, a capture, a text.
var unformatted = []string{"serve", "ratelimit", "envoy", "capture", "help"}

// noService are the commands that ask no service: they are one, or are about files, a database or themselves.
var noService = []string{"serve", "ratelimit", "envoy", "check", "test", "replay", "migrate", "slots reconcile",
	"version", "help"}

// TestCommandsAreOneFamily: every command has --format, and those that ask a service have --addr. Shells complete each
// flag that is one of several words. docs/commands.md has each command.
func TestCommandsAreOneFamily(t *testing.T) {
	docs, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	all := leaves(rootCommand())
	for name, cmd := range all {
		format := cmd.Flags().Lookup("format")
		if has := format != nil && isEnum(format); has == slices.Contains(unformatted, name) {
			t.Errorf("%s: has --format: %v", name, has)
		}
		if has := cmd.Flags().Lookup("addr") != nil; has == slices.Contains(noService, name) {
			t.Errorf("%s: has --addr: %v", name, has)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) { completes(t, name, f) })
		if !regexp.MustCompile("(?m)^\\|.*`"+name+"[` ]").Match(docs) && !inGroup(string(docs), name) {
			t.Errorf("docs/commands.md has no row for %s", name)
		}
	}
	if len(all) < fewestCommands {
		t.Errorf("only %d commands are found", len(all))
	}
}

// inGroup reports whether a row such as `policy set`, `get` names a command.
func inGroup(docs, name string) bool {
	group, sub, _ := strings.Cut(name, " ")
	for _, line := range strings.Split(docs, "\n") {
		last := "`" + sub[strings.LastIndexByte(sub, ' ')+1:] + "`"
		if strings.HasPrefix(line, "| `"+group+" ") && strings.Contains(line, last) {
			return true
		}
	}
	return false
}

var severalWords = regexp.MustCompile("^[a-z_]+(, [a-z_]+)* or [a-z_]+")

// completes: what a shell offers after --flag are values that the flag takes, if its help names them.
func completes(t *testing.T, command string, f *pflag.Flag) {
	t.Helper()
	words := []string(nil)
	if e, ok := f.Value.(*enum); ok {
		words = e.values
	} else if f.Value.Type() == "string" && !f.Hidden && severalWords.MatchString(f.Usage) {
		words = strings.FieldsFunc(f.Usage, func(r rune) bool { return r == ' ' || r == ',' })[:1]
	}
	for _, s := range config.Settings().Rows {
		if s.Name == f.Name && s.Words != nil && !f.Hidden && words == nil {
			words = slices.DeleteFunc(slices.Clone(s.Words), func(w string) bool { return w == "" })
		}
	}
	if words == nil {
		return
	}
	_, out := headgate(t, append(append([]string{"__complete"}, strings.Fields(command)...), "--"+f.Name, "")...)
	for _, w := range words {
		if !slices.Contains(strings.Split(out, "\n"), w) {
			t.Errorf("%s --%s: shells do not offer %s: %s", command, f.Name, w, out)
		}
	}
}

// withArguments are the arguments of commands that need some and ask a service.
var withArguments = map[string]string{
	"ask": "d k=v", "explain": "d k=v", "slot": "e1", "slots assign": "payments e1",
	"policy set": "k --limit 1 --window 1m", "policy get": "k", "policy delete": "k", "policy import": "policies.csv",
	"slots config get": "c", "slots config set": "c --window 1m --max 1", "slots config pause": "c",
}

// TestEveryAddrTakesHostPortAndURL: nobody has to remember which command wants which.
func TestEveryAddrTakesHostPortAndURL(t *testing.T) {
	t.Chdir(t.TempDir())
	const policies = "key,limit,window,algorithm\nk,1,1m,fixed_window\n"
	if err := os.WriteFile("policies.csv", []byte(policies), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, cmd := range leaves(rootCommand()) {
		if cmd.Flags().Lookup("addr") == nil {
			continue
		}
		args := strings.Fields(name + " " + withArguments[name])
		for _, addr := range []string{"127.0.0.1:1", "http://127.0.0.1:1", "http://127.0.0.1:1/"} {
			if code, out := headgate(t, append(args, "--addr", addr)...); code == exitOK ||
				!strings.Contains(out, "connection refused") {
				t.Errorf("%s --addr %s: %d %s", name, addr, code, out)
			}
		}
	}
}

// TestHelpOfServeHasGroups: each setting is under the name of its group, once.
func TestHelpOfServeHasGroups(t *testing.T) {
	code, out := headgate(t, "serve", "--help")
	group := ""
	seen := map[string]string{}
	for _, line := range strings.Split(out, "\n") {
		if m := regexp.MustCompile("^([A-Z].*):$").FindStringSubmatch(line); m != nil {
			group = m[1]
		} else if m := regexp.MustCompile("^      --([a-z-]+)").FindStringSubmatch(line); m != nil {
			seen[m[1]] += group
		}
	}
	for _, s := range config.Settings().Rows {
		if code != exitOK || s.Group == "" || seen[s.Name] != s.Group {
			t.Errorf("--%s is in %q, want %q", s.Name, seen[s.Name], s.Group)
		}
	}
}
