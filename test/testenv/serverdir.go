package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// janitorScript waits until the test process is gone, however it went, and
// removes what its servers kept: their data, and the shared memory that a killed
// PostgreSQL leaves behind. Servers need a moment to die, hence the attempts.
const janitorScript = `cat >/dev/null
for attempt in 1 2 3 4 5 6 7 8 9 10; do
	for pid in "$1"/*/data/postmaster.pid; do
		[ -f "$pid" ] && ipcrm -m "$(sed -n 7p "$pid" | tr -s ' ' | cut -d ' ' -f 3)"
	done
	for disk in "$1"/disk-*; do
		[ -d "$disk" ] && umount -l "$disk"
	done
	rm -rf -- "$1" && exit
	sleep 0.3
done`

// serversDir is the directory of all database servers of this process. It is no
// tb.TempDir: a server that tests share outlives each of them, and one that runs
// as another user must be able to get there.
var serversDir = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp(tempRoot(), "hg-servers-")
	if err != nil {
		return "", fmt.Errorf("make a directory for servers: %w", err)
	}
	if err := errors.Join(os.Chmod(dir, 0o711), startJanitor(dir)); err != nil {
		return "", errors.Join(fmt.Errorf("prepare the directory %s for servers: %w", dir, err), os.RemoveAll(dir))
	}
	return dir, nil
})

// tempRoot is where temporary files go, if other users can get there and the
// path leaves room for that of a unix socket, which has 108 bytes.
func tempRoot() string {
	root := os.TempDir()
	if len(root) > 60 {
		return "/tmp"
	}
	for dir := root; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return "/tmp"
		}
	}
	return root
}

// startJanitor starts the process that removes dir after this one.
func startJanitor(dir string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", janitorScript, "sh", dir)
	cmd.Stdin = r
	// A session of its own: what is typed to end the tests is not for it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, w.Close())
	}
	// The kernel closes the other end with this process, which is the signal.
	// Reading it from a goroutine keeps the file from being collected before.
	go func() {
		_ = cmd.Wait()
		_ = w.Close()
	}()
	return nil
}

// newServerDir makes an empty directory that belongs to the account.
func newServerDir(name string, a account) (string, error) {
	root, err := serversDir()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(root, name+"-")
	if err != nil {
		return "", fmt.Errorf("make a directory for %s: %w", name, err)
	}
	if err := a.own(dir); err != nil {
		return "", errors.Join(fmt.Errorf("make a directory for %s: %w", name, err), os.RemoveAll(dir))
	}
	return dir, nil
}

// account is the user that a server runs as; nil is the one who runs the tests.
type account struct{ credential *syscall.Credential }

// serverAccount is the user called name if the tests run as root, because most
// database servers refuse to run as root. Otherwise, or without a name, it is the
// user who runs the tests.
func serverAccount(name string) (account, error) {
	if os.Geteuid() != 0 || name == "" {
		return account{}, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return account{}, fmt.Errorf("the server does not run as root and there is no user %s to run it as: %w", name, err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return account{}, fmt.Errorf("the user %s has the id %q: %w", name, u.Uid, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return account{}, fmt.Errorf("the user %s has the group %q: %w", name, u.Gid, err)
	}
	return account{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}

func (a account) own(path string) error {
	if a.credential == nil {
		return nil
	}
	return os.Chown(path, int(a.credential.Uid), int(a.credential.Gid))
}

// command makes a command that runs as the account in the directory dir, with
// nothing of the test's environment that could change what it does.
func (a account) command(dir, path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	// A starting MariaDB removes temporary tables from the directory for temporary
	// files, also those of others.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + dir, "TMPDIR=" + dir,
		"LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential}
	return cmd
}
