package reference

import (
	"path/filepath"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

// Check returns what envoyproxy/ratelimit does differently with rules: it also reads files that headgate ignores for
// their names. spec was read from the sources; inPlace is as for [Find].
func Check(sources []rulefile.Source, spec *descriptors.Spec, inPlace bool) (differences []descriptors.Problem) {
	for _, s := range sources {
		if ext := filepath.Ext(s.Name); !inPlace && ext != ".yaml" && ext != ".yml" {
			differences = append(differences, descriptors.Problem{File: s.Name, Line: 1, Warning: true,
				Message: "differs: the name of the file: the reference reads all files; headgate reads *.yaml and *.yml, " +
					"unless it runs as ratelimit"})
		}
	}
	return append(differences, Find(spec, inPlace)...)
}
