package files

import (
	"errors"
	"log/slog"
	"strings"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

// Load reads and compiles the files and directories at paths. The Spec is what the Set
// was built from. Errors: a file cannot be read, or those of [ProblemsError].
func Load(paths []string, opt rulefile.Options) (*descriptors.Set, *descriptors.Spec, error) {
	sources, err := ReadPaths(paths, Names{})
	if err != nil {
		return nil, nil, err
	}
	set, spec, problems := rulefile.LoadSpec(sources, opt)
	if set == nil {
		return nil, nil, ProblemsError(problems)
	}
	return set, spec, nil
}

// maxLogged is how many warnings are logged at a time: rules are read again whenever they change.
const maxLogged = 20

// LogWarnings logs warnings about rules, a line for each of the first ones.
func LogWarnings(log *slog.Logger, warnings []descriptors.Problem) {
	for i, w := range warnings {
		if i == maxLogged {
			log.Warn("further warnings about the rules are not logged; headgate check shows all", "further", len(warnings)-i)
			return
		}
		log.Warn("warning about the rules", "warning", w.String())
	}
}

// ProblemsError returns an error that lists the problems, one on each line.
func ProblemsError(problems []descriptors.Problem) error {
	lines := []string{"the rules have errors:"}
	for _, p := range problems {
		lines = append(lines, "  "+p.String())
	}
	return errors.New(strings.Join(lines, "\n"))
}
