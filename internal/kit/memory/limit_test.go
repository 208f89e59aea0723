package memory

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

// TestLimitIsTheLeastOfAllGroups: the files are as Linux and container engines write them.
func TestLimitIsTheLeastOfAllGroups(t *testing.T) {
	const (
		v1     = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
		v2     = "31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n"
		hybrid = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
		other  = "33 31 0:30 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
		none   = "9223372036854771712\n"
		mem    = "MemTotal:        1048576 kB\nMemFree: 1 kB\n"
	)
	for _, c := range []struct {
		name        string
		files       map[string]string
		want        int64
		from        string
		mounts, own string
	}{
		{"nothing", nil, math.MaxInt64, "", "", ""},
		{"the machine", map[string]string{"proc/meminfo": mem}, 1 << 30, "/proc/meminfo", "", ""},
		{"v2, its own group", map[string]string{"proc/meminfo": mem, "sys/fs/cgroup/a/b/memory.max": "134217728\n",
			"sys/fs/cgroup/a/memory.max": "max\n"},
			128 << 20, "/sys/fs/cgroup/a/b/memory.max", v2, "0::/a/b\n"},
		{"v2, a parent", map[string]string{"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "4096\n"},
			4096, "/sys/fs/cgroup/a/memory.max", v2, "0::/a/b\n"},
		{"v2, in a container that sees itself as the root", map[string]string{"sys/fs/cgroup/memory.max": "4096"},
			4096, "/sys/fs/cgroup/memory.max", v2, "0::/\n"},
		{"v2, a group that is not below the mount", map[string]string{"sys/fs/cgroup/memory.max": "4096"},
			4096, "/sys/fs/cgroup/memory.max", v2, "0::/../other\n"},
		{"v1", map[string]string{"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "8192\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": none},
			8192, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes", other + v1 + hybrid, "4:memory:/a\n1:cpu:/\n0::/\n"},
		{"v1, with the group as the mount's root", map[string]string{"sys/fs/cgroup/memory/memory.limit_in_bytes": "8192\n"},
			8192, "/sys/fs/cgroup/memory/memory.limit_in_bytes",
			"35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n", "4:memory:/docker/abc\n"},
		{"v1, one of several controllers", map[string]string{"cg/m/x/memory.limit_in_bytes": "8192\n"},
			8192, "/cg/m/x/memory.limit_in_bytes",
			"35 31 0:32 / /cg/m ro - cgroup cgroup rw,cpuset,memory\n", "4:cpuset,memory:/x\n"},
		{"not a number", map[string]string{"sys/fs/cgroup/memory.max": "much"}, math.MaxInt64, "", v2, "0::/\n"},
	} {
		root := t.TempDir()
		write := func(name, text string) {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("proc/self/mountinfo", c.mounts)
		write("proc/self/cgroup", c.own)
		for name, text := range c.files {
			write(name, text)
		}
		if got := Read(root); got != (Limit{c.want, c.from, math.MaxInt64}) {
			t.Errorf("%s: %+v, want %d from %s", c.name, got, c.want, c.from)
		}
	}
}

// TestFilesAreTheSoftLimit: the table is as Linux writes it.
func TestFilesAreTheSoftLimit(t *testing.T) {
	const head = "Limit                     Soft Limit           Hard Limit           Units     \n"
	for line, want := range map[string]int64{
		"Max open files            1024                 524288               files     \n": 1024,
		"Max open files            unlimited            unlimited            files     \n": math.MaxInt64,
		"Max open files\n": math.MaxInt64,
		"Max locked memory         65536                65536                bytes     \n": math.MaxInt64,
	} {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, "proc/self"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "proc/self/limits"), []byte(head+line), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := Read(root).Files; got != want {
			t.Errorf("%q: %d, want %d", line, got, want)
		}
	}
	if n := Read("/").Files; n < 64 || n == math.MaxInt64 {
		t.Errorf("of this process: %d", n)
	}
}

// TestBoundsFollowTheLimit in a small container, and are what they were in a large one.
func TestBoundsFollowTheLimit(t *testing.T) {
	for _, c := range []struct{ limit, files, pool, connections int64 }{
		{128 << 20, 1 << 20, 32 << 20, 1024},
		{256 << 20, 1 << 20, 64 << 20, 2048},
		{4 << 30, 1 << 20, DefaultPool, 16384},
		{4 << 30, 1024, DefaultPool, 434},
		{4 << 30, 8, DefaultPool, 1},
		{math.MaxInt64, math.MaxInt64, DefaultPool, 16384},
	} {
		l := Limit{Bytes: c.limit, Files: c.files}
		if pool, n := l.Pool().Limit(), l.Connections(16384, 16<<10, 7); pool != c.pool || n != int(c.connections) {
			t.Errorf("%d: a pool of %d and %d connections, want %d and %d", c.limit, pool, n, c.pool, c.connections)
		}
	}
}
