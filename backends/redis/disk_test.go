package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// diskLimit is a log, for which the script writes several times.
var diskLimit = limit.MustNew(limit.Spec{Algorithm: limit.SlidingLog, Max: 1_000_000, Window: time.Hour})

func takeLogged(b *Backend, group string, cost int64) limit.Verdict {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out := make([]limit.Verdict, 1)
	b.Take(ctx, []limit.Request{
		{Ops: []limit.Op{{Key: limit.Key{Group: group, Limit: "l/sliding_log"}, Limit: diskLimit, Cost: cost}}}}, out)
	return out[0]
}

// onDisk has a server keep its files on a disk, by some settings.
func onDisk(disk *testenv.Disk, settings ...string) testenv.RedisOption {
	return testenv.WithArgs(append([]string{"--dir", disk.Dir}, settings...)...)
}

// With a full disk a Redis that cannot write its append-only file, or its snapshot, answers MISCONF: nothing
// is admitted that is not recorded, nothing is in doubt, and what writes nothing is decided. All goes on when
// there is room.
func TestFullDiskRefusesWrites(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings []string
		snapshot bool // else what was admitted survives a crash
	}{
		{"append-only file", []string{"--appendonly", "yes", "--appendfsync", "everysec"}, false},
		{"snapshot", []string{"--save", "3600 1000000"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk := testenv.NewDisk(t, testenv.Redis, 2)
			server := testenv.StartRedis(t, onDisk(disk, c.settings...))
			b, probe := open(t, server.URL()), server.Client()
			if v := takeLogged(b, "before", 1); v.Err != nil {
				t.Fatal(v.Err)
			}
			disk.Fill()
			save := func() {
				if c.snapshot {
					_ = probe.BgSave(t.Context()).Err() // one may be under way
				}
			}
			save()
			admitted, refused := int64(0), 0
			testenv.Eventually(t, 30*time.Second, "notice that the disk is full", func() string {
				for range 200 {
					switch v := takeLogged(b, "k", 1); {
					case v.Err == nil && v.Admitted:
						admitted++
					case !errors.Is(v.Err, backends.ErrNotApplied) || !errors.Is(v.Err, backends.ErrUnavailable) || !strings.Contains(
						v.Err.Error(), "MISCONF"):
						t.Fatalf("on a full disk: %+v", v)
					default:
						refused++
					}
				}
				if refused < 200 {
					return fmt.Sprint(admitted, " admitted, ", refused, " refused")
				}
				return ""
			})
			if v := takeLogged(b, "k", 0); v.Err != nil {
				t.Errorf("a question is not answered: %v", v.Err)
			}
			if err := b.Ping(t.Context()); !errors.Is(err, backends.ErrUnavailable) {
				t.Errorf("a ping on a full disk: %v", err)
			}
			disk.Free()
			testenv.Eventually(t, 30*time.Second, "go on when there is room", func() string {
				save()
				if v := takeLogged(b, "k", 1); v.Err != nil {
					return v.Err.Error()
				}
				admitted++
				return ""
			})
			if !c.snapshot {
				waitWritten(t, probe)
				server.Restart()
				b = open(t, server.URL())
			}
			wantTaken(t, b, "k", admitted, admitted)
			wantTaken(t, b, "before", 1, 1)
		})
	}
}

// A Redis that waits for its append-only file at each write ends when the disk is full. What was admitted is
// there when it is started again.
func TestFullDiskEndsServerThatWaitsForIt(t *testing.T) {
	disk := testenv.NewDisk(t, testenv.Redis, 2)
	server := testenv.StartRedis(t, onDisk(disk, "--appendonly", "yes", "--appendfsync", "always"))
	b := open(t, server.URL())
	disk.Fill()
	admitted, unknown := int64(0), int64(0)
	testenv.Eventually(t, 30*time.Second, "have the server end", func() string {
		for range 20 {
			switch v := takeLogged(b, "k", 1); {
			case v.Err == nil && v.Admitted:
				admitted++
			case !errors.Is(v.Err, backends.ErrUnavailable):
				t.Fatalf("on a full disk: %+v", v)
			case !errors.Is(v.Err, backends.ErrNotApplied):
				unknown++
			}
		}
		if server.Running() {
			return fmt.Sprint("it runs; ", admitted, " admitted")
		}
		return ""
	})
	disk.Free()
	server.Restart()
	testenv.Eventually(t, 10*time.Second, "go on when there is room", func() string {
		if v := takeLogged(b, "k", 1); v.Err != nil {
			return v.Err.Error()
		}
		admitted++
		return ""
	})
	wantTaken(t, b, "k", admitted, admitted+unknown)
}

// waitWritten waits until the append-only file has all that was written.
func waitWritten(t *testing.T, probe *redis.Client) {
	t.Helper()
	testenv.Eventually(t, 10*time.Second, "write the append-only file", func() string {
		info := parseInfo(probe.Info(t.Context(), "persistence").Val())
		if got := info["aof_last_write_status"] + " " + info["aof_buffer_length"] + " " +
			info["aof_pending_bio_fsync"]; got != "ok 0 0" {
			return got
		}
		return ""
	})
}

// wantTaken looks how many units a group has taken.
func wantTaken(t *testing.T, b *Backend, group string, least, most int64) {
	t.Helper()
	v := takeLogged(b, group, 0)
	if v.Err != nil {
		t.Fatal(v.Err)
	}
	got := diskLimit.Max() - v.Outcomes[0].Remaining
	t.Logf("%s: %d to %d were admitted, %d are recorded", group, least, most, got)
	if got < least || got > most {
		t.Errorf("%s: %d units are recorded, want %d to %d", group, got, least, most)
	}
}
