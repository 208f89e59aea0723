package repo

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logMethods are the calls that log, with the place of their message among the
// arguments; -1: none, as keys and values are all they take. A function warn in ratelimit
// logs now and then what it is called with: its calls are held to the rule, not its body.
var logMethods = map[string]int{
	"Debug": 0, "Info": 0, "Warn": 0, "Error": 0, "warn": 0,
	"DebugContext": 1, "InfoContext": 1, "WarnContext": 1, "ErrorContext": 1,
	"Log": 2, "LogAttrs": 2, "With": -1,
}

// logFree are the files that make keys and messages of what other files declare: the
// names of listeners, a table of messages.
var logFree = []string{"internal/app/server/server.go", "internal/wire/unary/eventlog.go"}

var snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// checkLogs finds records of the log that cannot be searched for: a message that is not
// constant or has verbs of fmt, and keys that are not constants in snake case.
func checkLogs(name string, files *token.FileSet, file *ast.File) (found []string) {
	if slices.Contains(logFree, name) {
		return nil
	}
	report := func(n ast.Node, format string, args ...any) {
		found = append(found, fmt.Sprintf("%s: log: %s", files.Position(n.Pos()), fmt.Sprintf(format, args...)))
	}
	for _, i := range file.Imports {
		if i.Path.Value == `"log"` {
			report(i, "use log/slog")
		}
	}
	constant, samples := constants(file), within(name, "ratelimit") || within(name, "internal/wire/accesslog")
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			return !samples || n.Name.Name != "warn"
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			if ok && (isLogger(f.X) || samples && f.Sel.Name == "warn") {
				checkLogCall(f, n, constant, report)
			}
		}
		return true
	})
	return found
}

func checkLogCall(f *ast.SelectorExpr, call *ast.CallExpr, constant map[string]string,
	report func(ast.Node, string, ...any)) {
	message, ok := logMethods[f.Sel.Name]
	if !ok || len(call.Args) <= message {
		return
	}
	if message >= 0 {
		text, ok := textOf(call.Args[message], constant)
		switch {
		case !ok:
			report(call, "the message is not constant: give what varies as a value")
		case strings.Contains(text, "%"):
			report(call, "the message %q has a verb of fmt: give what varies as a value", text)
		}
	}
	if call.Ellipsis.IsValid() {
		report(call, "the keys cannot be seen here")
		return
	}
	for i := message + 1; i < len(call.Args); i += 2 {
		key := call.Args[i]
		if attr, ok := key.(*ast.CallExpr); ok && len(attr.Args) > 0 { // slog.Int("n", 1)
			key, i = attr.Args[0], i-1
		}
		if text, ok := textOf(key, constant); !ok || !snakeCase.MatchString(text) {
			report(call, "key %d is not a constant in snake case", i-message)
		}
	}
}

// isLogger looks at the names that loggers have.
func isLogger(x ast.Expr) bool {
	name := ""
	switch x := x.(type) {
	case *ast.Ident:
		name = x.Name
	case *ast.SelectorExpr:
		name = x.Sel.Name
	case *ast.CallExpr:
		f, ok := x.Fun.(*ast.SelectorExpr)
		return ok && (f.Sel.Name == "With" && isLogger(f.X) || f.Sel.Name == "Default" && isLogger(f.X))
	}
	return slices.Contains([]string{"log", "logger", "slog"}, strings.ToLower(name))
}

// textOf returns what a literal or a constant of the file says.
func textOf(x ast.Expr, constant map[string]string) (string, bool) {
	switch x := x.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(x.Value)
		return text, err == nil && x.Kind == token.STRING
	case *ast.Ident:
		text, ok := constant[x.Name]
		return text, ok
	}
	return "", false
}

// constants returns the constant strings of a file, by name.
func constants(file *ast.File) map[string]string {
	found := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		d, ok := n.(*ast.GenDecl)
		if !ok || d.Tok != token.CONST {
			return true
		}
		for _, s := range d.Specs {
			s := s.(*ast.ValueSpec)
			for i, name := range s.Names {
				if i < len(s.Values) {
					if text, ok := textOf(s.Values[i], nil); ok {
						found[name.Name] = text
					}
				}
			}
		}
		return true
	})
	return found
}

func TestLogRules(t *testing.T) {
	for body, want := range map[string]string{
		`log.Info("it is so", "key_2", v)`:                         "",
		`s.conf.Log.Warn("it is so")`:                              "",
		`slog.Error("it is so", "a", 1, slog.Int("b", 2), "c", 3)`: "",
		`log.Log(ctx, level, "it is so", "key", v)`:                "",
		`log.With("key", v).Debug("it is so")`:                     "",
		"const m = \"it is so\"\n\tlog.Info(m, \"key\", v)":        "",
		`s.warn("it is so", "key", v)`:                             "",
		`other.Info("it is %s"+x, "Key")`:                          "",
		`log.Info("it is " + x)`:                                   "not constant",
		`log.Info(fmt.Sprintf("it is %d", x))`:                     "not constant",
		`log.Info("it is %d", "key", x)`:                           "verb of fmt",
		`log.Log(ctx, level, text, "key", v)`:                      "not constant",
		`s.warn(text, "key", v)`:                                   "not constant",
		`s.log.Info("it is so", "eventId", v)`:                     "snake case",
		`s.log.Info("it is so", "the event", v)`:                   "snake case",
		`s.log.Info("it is so", "a", 1, slog.Int("B", 2))`:         "snake case",
		`s.log.Info("it is so", key, v)`:                           "snake case",
		`s.log.With("Key", v).Info("it is so")`:                    "snake case",
		`s.log.Info("it is so", args...)`:                          "cannot be seen",
	} {
		expect(t, body, checkSource("ratelimit/a.go", []byte("package a\n\nfunc f() {\n\t"+body+"\n}\n")), want)
	}
	expect(t, "import of log", checkSource("a/a.go", []byte("package a\n\nimport \"log\"\n\nvar l = log.Default()\n")),
		"log/slog")
	expect(t, "body of warn", checkSource("ratelimit/a.go",
		[]byte("package a\n\nfunc (s *s) warn(m string, args ...any) {\n\ts.log.Warn(m, args...)\n}\n")), "")
}
