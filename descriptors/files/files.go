package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

// Bounds of what ReadPaths reads.
const (
	maxSources    = 10_000
	maxTotalBytes = 256 << 20
	MaxDepth      = 8
	MaxLinks      = 32 // one after the other
)

// Names says which files of directories hold rules. The zero value is for *.yaml
// and *.yml without a dot at the beginning, of which there must be one.
type Names struct {
	// All takes files of every extension, as envoyproxy/ratelimit does.
	All bool
	// Dots takes names that begin with a dot too. Those that begin with two are
	// never read: Kubernetes keeps the versions of a ConfigMap there.
	Dots bool
	// Empty accepts directories without any file.
	Empty bool
}

// ReadPaths reads files of rules. Each path may be followed by the domains that its files may have, as
// [rulefile.ParseOwners] reads them. Of a directory it reads all files with rules,
// also in directories below, in alphabetical order; links are followed. A
// directory without any rules is an error unless files accepts it, or a list of domains stands behind it: while files
// are being replaced it is more likely than an operator who wants no limits.
func ReadPaths(paths []string, files Names) ([]rulefile.Source, error) {
	sources, unreadable, err := ReadEach(paths, files)
	if err == nil && len(unreadable) > 0 {
		err = unreadable[0].Err
	}
	if err != nil {
		return nil, err
	}
	return sources, nil
}

// ReadEach is ReadPaths that goes on to the next file after one that cannot be
// read. Its error says that there are more files, or larger ones, than are read.
func ReadEach(paths []string, files Names) ([]rulefile.Source, []Unreadable, error) {
	owners, err := rulefile.ParseOwners(paths)
	if err != nil {
		return nil, nil, err
	}
	r := &reader{files: files}
	for _, o := range owners {
		r.owner = o
		if err := r.read(o.Path); err != nil {
			return nil, nil, err
		}
	}
	return r.sources, r.failed, nil
}

type reader struct {
	files   Names
	owner   *rulefile.Owner
	sources []rulefile.Source
	failed  []Unreadable
	total   int
}

// An Unreadable is a file or directory that could not be read.
type Unreadable struct {
	Path  string
	Owner *rulefile.Owner
	Err   error
}

// Problem says so as a problem of the rules.
func (u Unreadable) Problem() descriptors.Problem {
	return descriptors.Problem{File: u.Path, Message: strings.TrimPrefix(u.Err.Error(), u.Path+": ")}
}

// errTooMuch is an error about all files together.
var errTooMuch = errors.New("too much to read")

// keep notes that path cannot be read, unless err is about all files together.
func (r *reader) keep(path string, err error) error {
	if err == nil || errors.Is(err, errTooMuch) {
		return err
	}
	if where, ok := errors.AsType[*fs.PathError](err); ok && where.Path == path {
		err = fmt.Errorf("%s: %w", path, where.Err) // without the system call's name
	}
	r.failed = append(r.failed, Unreadable{path, r.owner, err})
	return nil
}

// read reads one of the paths that ReadPaths got.
func (r *reader) read(p string) error {
	info, err := os.Stat(p)
	if err != nil {
		return r.keep(p, err)
	}
	if !info.IsDir() {
		return r.keep(p, r.file(p))
	}
	before := len(r.sources) + len(r.failed)
	if err := r.folder(p, 0); err != nil {
		return err
	}
	if len(r.sources)+len(r.failed) == before && !r.files.Empty && !r.owner.Lists() {
		return r.keep(p, fmt.Errorf("%s: no rules: the directory has no %s", p, r.files))
	}
	return nil
}

// String says what files there are none of.
func (f Names) String() string {
	if f.All {
		return "file"
	}
	return "*.yaml or *.yml file"
}

// Looks reports whether what has a name in a directory is looked at.
func (f Names) Looks(name string) bool {
	if f.Dots {
		return !strings.HasPrefix(name, "..")
	}
	return !strings.HasPrefix(name, ".")
}

// rules reports whether a file in a directory holds rules, by its name.
func (f Names) rules(name string) bool {
	ext := filepath.Ext(name)
	return f.Looks(name) && (f.All || ext == ".yaml" || ext == ".yml")
}

func (r *reader) folder(dir string, depth int) error {
	if depth > MaxDepth {
		return r.keep(dir, fmt.Errorf("%s: directories are nested deeper than %d; is there a link to a directory above?", dir,
			MaxDepth))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return r.keep(dir, err)
	}
	for _, e := range entries {
		if !r.files.Looks(e.Name()) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		isDir := e.IsDir()
		if e.Type()&fs.ModeSymlink != 0 {
			info, err := os.Stat(path)
			isDir = err == nil && info.IsDir() // what leads nowhere is read as a file, which fails
		}
		if isDir {
			err = r.folder(path, depth+1)
		} else if r.files.rules(e.Name()) {
			err = r.keep(path, r.file(path))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) file(path string) error {
	if len(r.sources) == maxSources {
		return fmt.Errorf("%s: more than %d files of rules: %w", path, maxSources, errTooMuch)
	}
	// Asked before opening, since opening a pipe would wait for a writer.
	if info, err := os.Stat(path); err != nil {
		return err
	} else if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(f, rulefile.MaxSourceBytes+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if len(data) > rulefile.MaxSourceBytes {
		return fmt.Errorf("%s: larger than %d MiB", path, rulefile.MaxSourceBytes>>20)
	}
	if r.total += len(data); r.total > maxTotalBytes {
		return fmt.Errorf("%s: the files of rules have more than %d MiB together: %w", path, maxTotalBytes>>20, errTooMuch)
	}
	r.sources = append(r.sources, rulefile.Source{Name: path, Data: data, Owner: r.owner}.Files(r.files.rules)...)
	if len(r.sources) > maxSources {
		return fmt.Errorf("%s: more than %d files of rules: %w", path, maxSources, errTooMuch)
	}
	return nil
}
