package envoyconf

import (
	"bytes"
	_ "embed"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"text/template"
	"time"

	"go.yaml.in/yaml/v3"
)

//go:embed envoy.yaml.tmpl
var source string

var templates = template.Must(template.New("").Option("missingkey=error").Funcs(template.FuncMap{
	"q": q, "address": address, "seconds": seconds, "words": words, "items": items, "isURI": isURI,
	"list": func(s ...string) []string { return s }, "names": func() map[string]string { return names },
	"label": func(s string) string {
		name, value, _ := strings.Cut(s, "=")
		return q(name) + ": " + q(value)
	},
	"indent": func(n int, s string) string {
		return blank.ReplaceAllString(before(strings.Repeat(" ", n), s), "")
	},
	"comment": func(s string) string { return before("# ", s) },
}).Parse(source))

// blank are lines that are empty but for their indentation.
var blank = regexp.MustCompile(`(?m)^ +$`)

// render returns a template's text, from its first line to the end of its last.
func render(name string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		return nil, err
	}
	text := bytes.Trim(b.Bytes(), "\n")
	if len(text) > 0 {
		text = append(text, '\n')
	}
	return text, nil
}

// before puts prefix before each line.
func before(prefix, s string) string {
	return prefix + strings.ReplaceAll(s, "\n", "\n"+prefix)
}

// words makes one line of text.
func words(s string) string { return strings.Join(strings.Fields(s), " ") }

// q writes a string so that it is one between the brackets of YAML, and elsewhere.
func q(s string) string {
	text, err := yaml.Marshal(&struct {
		V []string `yaml:"v,flow"`
	}{[]string{s}})
	if err != nil {
		return strconv.Quote(s)
	}
	return string(text[len("v: [") : len(text)-len("]\n")])
}

// An item is an element of a list, with the comment above it.
type item struct{ Comment, Body string }

// items takes a list apart.
func items(list string) (all []item) {
	var comment string
	for line := range strings.SplitSeq(list, "\n") {
		switch {
		case strings.HasPrefix(line, "# "):
			comment += "\n" + line
		case strings.HasPrefix(line, "- "):
			all = append(all, item{strings.Trim(comment, "\n"), line[2:]})
			comment = ""
		default:
			all[len(all)-1].Body += "\n" + strings.TrimPrefix(line, "  ")
		}
	}
	return all
}

// address makes Envoy's form of host:port or unix:PATH.
func address(s string) (string, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if path == "" {
			return "", fmt.Errorf("%q has no path", s)
		}
		return "{pipe: {path: " + q(path) + "}}", nil
	}
	host, port, err := net.SplitHostPort(s)
	n, bad := strconv.Atoi(port)
	if err != nil || bad != nil || n < 0 || n > 65535 || host == "" {
		return "", fmt.Errorf("must be host:port or unix:PATH, not %q", s)
	}
	return fmt.Sprintf("{socket_address: {address: %s, port_value: %d}}", q(host), n), nil
}

// isURI reports whether a certificate's name is a URI, not a DNS name.
func isURI(san string) bool { return strings.Contains(san, "://") }

// isName reports whether an address has a name that Envoy must look up.
func isName(s string) bool {
	host, _, err := net.SplitHostPort(s)
	return err == nil && !strings.HasPrefix(s, "unix:") && net.ParseIP(host) == nil
}

// seconds writes a duration as protobuf's JSON does.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Round(time.Millisecond).Seconds(), 'f', -1, 64) + "s"
}

// llmLua reads what calls to language models may use and have used.
//
//go:embed llm.lua
var llmLua string

// The Lua that hands on what Envoy itself has read of calls to language models.
var (
	//go:embed nativeanswer.lua
	nativeAnswerLua string
	//go:embed nativerequest.lua
	nativeRequestLua string
)

// chooseLua tells the route which cluster was chosen.
//
//go:embed choose.lua
var chooseLua string
