package sqlstore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// mostHanging are the sessions that a process may leave behind while commits hang and it has one call at a
// time: that of a claim, that of the write that is tried then, and those that wait for its row.
const mostHanging = 12

// With a binary log, commits of a MariaDB hang on a full disk, and for up to a minute after there is room.
// Calls end by their deadlines all the same, and do not use up the sessions of the server.
func TestFullDiskWithBinaryLog(t *testing.T) {
	whole := random.Long()
	disk := testenv.NewDisk(t, testenv.MariaDB, 80)
	server := testenv.StartDatabase(t, testenv.MariaDB, testenv.Durable(), testenv.WithData(disk.Dir),
		testenv.WithSettings("--log-bin=binlog", "--server-id=1", "--binlog-format=ROW"))
	db := migrated(t, server.CreateDatabase("slots"))
	const timeout = 200 * time.Millisecond
	s, err := slots.NewScheduler(db, slots.Settings{Timeout: timeout})
	check(t, err)
	_, err = s.PutConfig(soon(t), slots.NewConfig{Name: "default", Max: 10, SizeMs: 1000})
	check(t, err)
	at := time.Now()
	assign := func(n int) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := s.Assign(ctx, slots.Request{EventID: fmt.Sprint("e", n), At: at.Add(time.Duration(n) * time.Minute)})
		return err
	}
	testenv.Eventually(t, 20*time.Second, "assign while there is room", func() string { return problem(assign(0)) })
	disk.Fill()
	failed := 0
	for n := 1; failed < 30; n++ { // the first ones may find room that the server has already
		began := time.Now()
		if err := assign(n); err != nil {
			failed++
		} else if n > 100 {
			t.Fatal("the disk is not full")
		}
		if took := time.Since(began); took > timeout+2*time.Second {
			t.Fatalf("call %d on a full disk took %v", n, took)
		}
	}
	if n := strings.Count(server.Exec("SHOW PROCESSLIST"), "slots"); n > mostHanging {
		t.Errorf("%d sessions hang on the server, want %d at most", n, mostHanging)
	}
	if whole {
		disk.Free()
		testenv.Eventually(t, 90*time.Second, "go on when there is room", func() string { return problem(assign(-1)) })
	}
}

func problem(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}
