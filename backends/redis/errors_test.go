package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/test/testenv"
)

type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

func TestErrorsMapToTheirMeaning(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, c := range []struct {
		err     error
		sent    bool
		want    error
		applied bool // perhaps
		remedy  remedy
	}{
		{&dialError{refused}, true, backends.ErrUnavailable, false, tryLater},
		{&dialError{errors.New("redis: all sentinels are unreachable")}, true, backends.ErrUnavailable, false, tryLater},
		{&dialError{context.DeadlineExceeded}, true, backends.ErrUnavailable, false, tryLater},
		{&awayError{"h:1", fmt.Errorf("%w: %w: not asked", backends.ErrUnavailable, backends.ErrNotApplied)}, true,
			backends.ErrUnavailable, false, none},
		{context.Canceled, false, backends.ErrUnavailable, false, none},
		{context.DeadlineExceeded, false, backends.ErrUnavailable, false, none},
		{context.DeadlineExceeded, true, backends.ErrUnavailable, true, none},
		{redis.ErrPoolTimeout, true, backends.ErrUnavailable, false, none},
		{redis.ErrClosed, true, backends.ErrUnavailable, false, none},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, false, backends.ErrUnavailable, true, none},
		{&net.OpError{Op: "write", Err: syscall.EPIPE}, false, backends.ErrUnavailable, true, none},
		{io.EOF, false, backends.ErrUnavailable, true, none},
		{io.ErrUnexpectedEOF, false, backends.ErrUnavailable, true, none},
		{errors.New("redis: can't parse reply"), false, backends.ErrUnavailable, true, none},

		{replyError("NOSCRIPT No matching script. Please use EVAL."), false, backends.ErrDeclined, false, resend},
		{replyError("READONLY You can't write against a read only replica."), false, backends.ErrDeclined,
			false, tryLater},
		{replyError("READONLY You can't write against a read only replica. script: 6f1e, on @user_script:3."), false,
			backends.ErrDeclined, false, tryLater},
		{replyError("ERR Error running script (call to f_6f1e): @user_script:12: @user_script: 12: " +
			"-READONLY You can't write against a read only replica."), false, backends.ErrDeclined, false, tryLater},
		{replyError("LOADING Redis is loading the dataset in memory"), false, backends.ErrUnavailable, false, tryLater},
		{replyError("MASTERDOWN Link with MASTER is down"), false, backends.ErrUnavailable, false, tryLater},
		{fmt.Errorf("sentinels: %w", errors.Join(redis.Nil, redis.Nil)), true, backends.ErrMisconfigured, false, none},
		{fmt.Errorf("sentinels: %w", errors.Join(redis.Nil, &dialError{refused})), true, backends.ErrUnavailable, false,
			tryLater},
		{replyError("MOVED 1 127.0.0.1:1"), false, backends.ErrDeclined, false, tryLater},
		{replyError("ASK 1 127.0.0.1:1"), false, backends.ErrDeclined, false, tryLater},
		{replyError("TRYAGAIN Multiple keys request during rehashing of slot"), false, backends.ErrDeclined,
			false, tryLater},
		{replyError("CLUSTERDOWN The cluster is down"), false, backends.ErrDeclined, false, tryLater},
		{replyError("ERR max number of clients reached"), false, backends.ErrUnavailable, false, tryLater},
		{replyError("BUSY Redis is busy running a script."), false, backends.ErrUnavailable, false, none},
		{replyError("OOM command not allowed when used memory > 'maxmemory'. script: 6f1e, on @user_script:3."), false,
			backends.ErrDeclined, false, none},
		{replyError("ERR Error running script (call to f_6f1e): @user_script:12: @user_script: 12: " +
			"-OOM command not allowed when used memory > 'maxmemory'."), false, backends.ErrDeclined, false, none},
		{replyError("MISCONF Redis is configured to save RDB snapshots"), false, backends.ErrDeclined, false, none},
		{replyError("NOREPLICAS Not enough good replicas to write."), false, backends.ErrDeclined, false, none},
		{replyError("NOAUTH Authentication required."), false, backends.ErrMisconfigured, false, none},
		{replyError("WRONGPASS invalid username-password pair or user is disabled."), false, backends.ErrMisconfigured,
			false, none},
		{replyError("NOPERM this user has no permissions to run the 'evalsha' command"), false, backends.ErrMisconfigured,
			false, none},
		{replyError("NOPERM this user has no permissions to run the 'set' command script: 6f1e, on @user_script:3."), false,
			errStanding, true, none},
		{replyError("ERR The user executing the script can't run this command or subcommand script: 6f1e, " +
			"on @user_script:3."), false, errStanding, true, none},
		{replyError("ERR unknown command 'EVALSHA'"), false, backends.ErrMisconfigured, false, none},
		{replyError("CROSSSLOT Keys in request don't hash to the same slot"), false, errStanding, false, none},
		{replyError("ERR This instance has cluster support disabled"), false, backends.ErrMisconfigured, false, none},
		{replyError("ERR DB index is out of range"), false, backends.ErrMisconfigured, false, none},
		{replyError("ERR Script killed by user with SCRIPT KILL... script: 6f1e, on @user_script:1."), false,
			backends.ErrDeclined, false, none},
		{replyError("ERR Error running script (call to f_6f1e): @user_script:1: Script killed by user with SCRIPT KILL..."),
			false, backends.ErrDeclined, false, none},
		{replyError("ERR something new"), false, backends.ErrDeclined, true, none},
		{replyError("ERR user_script:12: attempt to index a nil value script: 6f1e, on @user_script:12."), false,
			backends.ErrCorrupt, true, none},
		{replyError("ERR Error running script (call to f_6f1e): @user_script:12: attempt to index a nil value"), false,
			backends.ErrCorrupt, true, none},
	} {
		for _, err := range []error{c.err, fmt.Errorf("wrapped: %w", c.err)} {
			if _, ok := c.err.(replyError); ok && err != c.err {
				continue // its text counts
			}
			remedy, got := mapError(err, c.sent)
			if !errors.Is(got, c.want) || errors.Is(got, backends.ErrNotApplied) == c.applied || remedy != c.remedy ||
				!errors.Is(got, c.err) {
				t.Errorf("%v, sent %v: %v, remedy %d", err, c.sent, got, remedy)
			}
		}
	}
}

// Redis returns an error for a script that was killed, and for calls while a script runs for too long.
// Neither means that data is corrupt: nothing was recorded.
func TestKilledScriptsRecordNothing(t *testing.T) {
	for _, flavour := range []string{testenv.Redis, testenv.Redis62, testenv.Valkey} {
		t.Run(flavour, func(t *testing.T) {
			server := testenv.StartRedis(t, testenv.WithFlavour(flavour), testenv.WithArgs("--lua-time-limit", "50"))
			busy, admin := server.Client(), server.Client()
			ended := make(chan error, 1)
			go func() { ended <- busy.Eval(t.Context(), "while true do end", nil).Err() }()
			testenv.Eventually(t, 10*time.Second, "be busy", func() string {
				err := admin.Get(t.Context(), "x").Err()
				if _, got := mapError(err, true); err == nil || !strings.HasPrefix(err.Error(), "BUSY") ||
					!errors.Is(got, backends.ErrNotApplied) {
					return fmt.Sprint(err)
				}
				return ""
			})
			if err := admin.ScriptKill(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			err := <-ended
			if _, got := mapError(err, true); !errors.Is(got, backends.ErrNotApplied) ||
				!errors.Is(got, backends.ErrUnavailable) || errors.Is(got, backends.ErrCorrupt) {
				t.Errorf("a killed script: %v", got)
			}
		})
	}
}
