package testenv

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// keptFor is how long data directories of other versions of a server are kept.
const keptFor = 24 * time.Hour

// newData makes the data directory of a new server, or copies one that the same program with the same
// arguments has made before: making one takes seconds, and a run of all tests needs some hundred. What no
// test has used is kept in the folder of servers.
func (s *databaseServer) newData(path string, args ...string) error {
	data := filepath.Join(s.dir, "data")
	kept := s.keptData(path, args)
	if _, err := os.Stat(kept); err == nil {
		return copyData(kept, data)
	}
	if err := s.setUp(path, args...); err != nil {
		return err
	}
	keepData(kept, data)
	return nil
}

// keptData is where the data directory is kept that a program makes, for the user that the server runs as.
func (s *databaseServer) keptData(path string, args []string) string {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	user := uint32(os.Geteuid())
	if s.account.credential != nil {
		user = s.account.credential.Uid
	}
	// The server's directory is in the arguments, and is another one each time.
	made := sha256.Sum256([]byte(s.version + "\n" + path + "\n" + strings.ReplaceAll(strings.Join(args, "\n"), s.dir, "")))
	return filepath.Join(cache, "headgate-testenv", "data", fmt.Sprintf("%s-%d-%x", s.kind.engine, user, made[:8]))
}

// keepData copies a new data directory for later servers, which do without it where that cannot be done.
func keepData(kept, data string) {
	_ = os.MkdirAll(filepath.Dir(kept), 0o755)
	fresh, err := os.MkdirTemp(filepath.Dir(kept), filepath.Base(kept)+".") // others may copy the kept one
	if err != nil {
		return
	}
	err = copyData(data, fresh)
	// MySQL writes its identity there, which replicas must not share. It makes a new one.
	_ = os.Remove(filepath.Join(fresh, "auto.cnf"))
	if err != nil || os.Rename(fresh, kept) != nil {
		_ = os.RemoveAll(fresh)
	}
	engine := kept[:strings.LastIndexByte(kept, '-')]
	others, _ := filepath.Glob(engine + "-*")
	for _, other := range others {
		if info, err := os.Stat(other); err == nil && other != kept && time.Since(info.ModTime()) > keptFor {
			_ = os.RemoveAll(other)
		}
	}
}

// copyData copies a data directory, with owners and rights, into one that is empty or not there.
func copyData(from, to string) error {
	if err := os.Mkdir(to, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	if out, err := exec.Command("cp", "-a", from+"/.", to+"/.").CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s to %s: %w: %s", from, to, err, out)
	}
	return nil
}
