package reference

import (
	"path/filepath"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/files"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

// Check is [files.Check] for rules of envoyproxy/ratelimit, which reads files of every
// name. It also returns what that service decides differently; inPlace is as for [Find].
func Check(paths []string, opt rulefile.Options, inPlace bool,
	unfit files.FindProblems) (set *descriptors.Set, problems, differences []descriptors.Problem, err error) {
	sources, err := files.ReadPaths(paths, files.Names{All: true})
	if err != nil {
		return nil, nil, nil, err
	}
	set, spec, problems := rulefile.LoadSpec(sources, opt)
	if set == nil {
		return nil, problems, nil, nil
	}
	for _, s := range sources {
		if ext := filepath.Ext(s.Name); !inPlace && ext != ".yaml" && ext != ".yml" {
			differences = append(differences, descriptors.Problem{File: s.Name, Line: 1, Warning: true,
				Message: "differs: the name of the file: the reference reads all files; headgate reads *.yaml and *.yml, " +
					"unless it runs as ratelimit"})
		}
	}
	return set, append(problems, unfit(set)...), append(differences, Find(spec, inPlace)...), nil
}
