package testenv

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// A Disk is a small file system of its own, in memory, which a test can fill.
type Disk struct {
	Dir string

	tb TB
}

// NewDisk mounts an empty disk of so many MiB, which belongs to the user that servers of the engine run as.
// The test is skipped where nothing can be mounted. Its cleanup takes the disk away, so make the disk
// before the server that is to use it.
func NewDisk(tb TB, engine string, mebibytes int) *Disk {
	tb.Helper()
	user := ""
	if make, ok := databaseMakes[engine]; ok {
		user = make.kind().user
	}
	a, err := serverAccount(user)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	dir, err := newServerDir(diskPrefix+engine, a)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size="+strconv.Itoa(mebibytes)+"m"); err != nil {
		_ = os.Remove(dir)
		tb.Skipf("no small disk can be had: %v", err)
	}
	tb.Cleanup(func() { _ = errors.Join(syscall.Unmount(dir, syscall.MNT_DETACH), os.Remove(dir)) })
	if err := a.own(dir); err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	return &Disk{Dir: dir, tb: tb}
}

// diskPrefix begins the names of disks among the directories of servers. See janitorScript.
const diskPrefix = "disk-"

func (d *Disk) filler() string { return filepath.Join(d.Dir, "filler") }

// Fill takes all the room that is left.
func (d *Disk) Fill() {
	d.tb.Helper()
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		d.tb.Fatalf("testenv: fill a disk: %v", err)
	}
	defer f.Close()
	for _, piece := range []int{1 << 20, 1 << 12} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, piece))
		}
		if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, io.ErrShortWrite) {
			d.tb.Fatalf("testenv: fill a disk: %v", err)
		}
	}
}

// Free gives back what Fill took.
func (d *Disk) Free() {
	d.tb.Helper()
	if err := os.Remove(d.filler()); err != nil {
		d.tb.Fatalf("testenv: %v", err)
	}
}
