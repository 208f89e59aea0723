package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/headgate-rls/headgate/internal/kit/spell"
)

const envPrefix = "HEADGATE"

// EnvName returns the environment variable of a flag.
func EnvName(flag string) string { return program{prefix: envPrefix}.envName(flag) }

func (p program) envName(flag string) string {
	return p.prefix + "_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// environment has the variables that the process was started with.
type environment map[string]string

func newEnvironment(environ []string) environment {
	e := environment{}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		e[name] = value
	}
	return e
}

func (e environment) lookup(name string) (string, bool) {
	value, ok := e[name]
	return value, ok
}

// unknown returns a warning for every variable that looks like a setting and
// is not the name of one, unless the value of a setting names it, as
// password_env does. Values are not shown: they may be secrets.
func (p program) unknown(e environment, fs *pflag.FlagSet) []string {
	flags := p.names()
	known, values := map[string]bool{}, ""
	for _, f := range flags {
		known[p.envName(f)] = true
	}
	fs.Visit(func(f *pflag.Flag) { values += f.Value.String() + "\n" })
	var list []string
	for name, value := range e {
		prefix, rest := splitPrefix(name, p.prefix)
		switch {
		case known[name] || p.inFamily(name) || injected(name, value) || strings.HasPrefix(name, testPrefix) || strings.Contains(values, name):
			continue
		case prefix != p.prefix && (spell.Nearest(prefix, []string{p.prefix}) == "" || !known[p.envName(strings.ToLower(rest))]):
			continue // another program's
		}
		meant := ""
		if best := spell.Nearest(strings.ToLower(strings.ReplaceAll(rest, "_", "-")), flags); best != "" {
			meant = "; did you mean " + p.envName(best) + "?"
		}
		list = append(list, fmt.Sprintf("unknown environment variable %s has no effect%s", name, meant))
	}
	slices.Sort(list)
	return list
}

// splitPrefix splits the name of a variable after as many words as the prefix has.
func splitPrefix(name, prefix string) (before, rest string) {
	words := strings.Split(name, "_")
	n := min(len(words), strings.Count(prefix, "_")+1)
	return strings.Join(words[:n], "_"), strings.Join(words[n:], "_")
}

// testPrefix begins the variables that the tests of this repository read.
const testPrefix = envPrefix + "_TEST"

// injectedName matches variables that Kubernetes sets in every pod for a
// Service whose name begins with headgate.
var injectedName = regexp.MustCompile(`^` + envPrefix + `_(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// injected says whether Kubernetes made the variable. HEADGATE_GRPC_PORT could
// be a guessed setting too, but Kubernetes sets such names to a URL.
func injected(name, value string) bool {
	return injectedName.MatchString(name) ||
		strings.HasPrefix(name, envPrefix+"_") && strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}
