package descriptors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Bounds of what ReadPaths reads.
const (
	maxSources     = 10_000
	maxTotalBytes  = 256 << 20
	maxFolderDepth = 8
)

// ReadPaths reads files of rules. Of a directory it reads all *.yaml and *.yml
// files, also in directories below, in alphabetical order. Names that start
// with a dot are left out, which is where Kubernetes keeps the versions of a
// ConfigMap; links are followed. A directory without any rules is an error:
// while files are being replaced it is more likely than an operator who wants
// no limits.
func ReadPaths(paths []string) ([]Source, error) {
	r := &reader{}
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			if err := r.file(p); err != nil {
				return nil, err
			}
			continue
		}
		before := len(r.sources)
		if err := r.folder(p, 0); err != nil {
			return nil, err
		}
		if len(r.sources) == before {
			return nil, fmt.Errorf("%s: no rules: the directory has no *.yaml or *.yml file", p)
		}
	}
	return r.sources, nil
}

type reader struct {
	sources []Source
	total   int
}

// isRules says whether a file in a directory holds rules, by its name.
func isRules(name string) bool {
	ext := filepath.Ext(name)
	return !strings.HasPrefix(name, ".") && (ext == ".yaml" || ext == ".yml")
}

func (r *reader) folder(dir string, depth int) error {
	if depth > maxFolderDepth {
		return fmt.Errorf("%s: directories are nested deeper than %d; is there a link to a directory above?", dir, maxFolderDepth)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		isDir := e.IsDir()
		if e.Type()&fs.ModeSymlink != 0 {
			info, err := os.Stat(path)
			if err != nil && isRules(e.Name()) {
				return err
			}
			isDir = err == nil && info.IsDir()
		}
		if isDir {
			err = r.folder(path, depth+1)
		} else if isRules(e.Name()) {
			err = r.file(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) file(path string) error {
	if len(r.sources) == maxSources {
		return fmt.Errorf("%s: more than %d files of rules", path, maxSources)
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
	data, err := io.ReadAll(io.LimitReader(f, maxSourceBytes+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if len(data) > maxSourceBytes {
		return fmt.Errorf("%s: larger than %d MiB", path, maxSourceBytes>>20)
	}
	if r.total += len(data); r.total > maxTotalBytes {
		return fmt.Errorf("%s: the files of rules have more than %d MiB together", path, maxTotalBytes>>20)
	}
	r.sources = append(r.sources, Source{Name: path, Data: data})
	return nil
}
