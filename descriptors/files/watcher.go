package files

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

// A Watcher keeps rules up to date with files.
type Watcher interface {
	// Load reads the files once, to start with, and returns their set and warnings. Its error is a *LoadError if it is
	// the rules that are wrong.
	Load() (*descriptors.Set, []descriptors.Problem, error)
	// Run follows the files until ctx ends.
	Run(ctx context.Context) error
}

// Following says how files are followed.
type Following struct {
	rulefile.Options
	Log *slog.Logger
	// Check returns what is wrong with rules where they are used, such as limits that a backend cannot keep.
	Check func(*descriptors.Set) []descriptors.Problem
	// OnChange gets every new set with its warnings.
	OnChange func(*descriptors.Set, []descriptors.Problem)
}

// watcher follows files: that of descriptors/watch, if the program has it.
var watcher func([]string, Following) Watcher

// RegisterWatcher has make follow files. A function init calls it.
func RegisterWatcher(make func([]string, Following) Watcher) { watcher = make }

// Watch returns what follows the files and directories at paths.
func Watch(paths []string, f Following) (Watcher, error) {
	if watcher == nil {
		return nil, errors.New("following files needs what does so in the program: " +
			`import _ "github.com/headgate-rls/headgate/descriptors/watch"`)
	}
	return watcher(paths, f), nil
}

// maxShown is how many problems the text of a LoadError has: it goes into a log whenever files change.
const maxShown = 20

// A LoadError is returned for rules that could be read but have errors.
type LoadError struct{ Problems []descriptors.Problem }

func (e *LoadError) Error() string {
	var lines []string
	further := 0
	for _, p := range e.Problems {
		switch {
		case p.Warning:
		case len(lines) == maxShown:
			further++
		default:
			lines = append(lines, p.String())
		}
	}
	if further > 0 {
		lines = append(lines, fmt.Sprintf("and %d further problems, which headgate check shows", further))
	}
	return strings.Join(lines, "\n")
}
