package backendtest

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A remote is the reference behind a socket: what the suite's checks of shared
// stores, of several processes and of faults need.
type remote struct {
	addr  string
	trips *atomic.Int64
	caps  backends.Caps
}

const remoteEnv = "HEADGATE_BACKENDTEST_REMOTE"

// A wireSpec is a limit.Spec whose zone is sent by its name.
type wireSpec struct{ limit.Spec }

type namedZone struct {
	limit.Spec
	Zone string // hides that of the Spec
}

func (w wireSpec) MarshalBinary() ([]byte, error) {
	return json.Marshal(namedZone{w.Spec, w.Zone.String()})
}

func (w *wireSpec) UnmarshalBinary(data []byte) (err error) {
	var n namedZone
	if err := json.Unmarshal(data, &n); err != nil {
		return err
	}
	w.Spec = n.Spec
	if w.Calendar {
		w.Zone, err = time.LoadLocation(n.Zone)
	}
	return err
}

// A wireOp is a limit.Op without the pointer.
type wireOp struct {
	Key          limit.Key
	Spec         wireSpec
	Cost         int64
	Holder       string
	Ending       limit.Ending
	AsOf         limit.Instant
	Shadow, Each bool
	Choice       limit.Choice
}

type wireRequest struct {
	At  limit.Instant
	Ops []wireOp
}

type wireCall struct {
	What string
	Reqs []wireRequest
	Keys []limit.Key
}

// ask makes one round trip.
func (r *remote) ask(ctx context.Context, call *wireCall, answer any) error {
	err := ctx.Err()
	if err == nil {
		err = r.trip(ctx, call, answer)
	} else {
		err = fmt.Errorf("%w: %w", backends.ErrNotApplied, err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", backends.ErrUnavailable, err)
	}
	return nil
}

func (r *remote) trip(ctx context.Context, call *wireCall, answer any) error {
	r.trips.Add(1)
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", r.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if d, ok := ctx.Deadline(); ok {
		conn.SetDeadline(d)
	}
	if err := gob.NewEncoder(conn).Encode(call); err != nil {
		return err
	}
	return gob.NewDecoder(conn).Decode(answer)
}

func (r *remote) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	call := wireCall{What: "take"}
	var sent []int
	for i := range reqs {
		out[i].Reset(0)
		if out[i].Err = r.caps.CheckRequest(&reqs[i]); out[i].Err != nil {
			continue
		}
		req := wireRequest{At: reqs[i].At}
		for _, op := range reqs[i].Ops {
			req.Ops = append(req.Ops, wireOp{op.Key, wireSpec{op.Limit.Spec()}, op.Cost, op.Holder, op.Ending,
				op.AsOf, op.Shadow, op.Each, op.Choice})
		}
		call.Reqs, sent = append(call.Reqs, req), append(sent, i)
	}
	if len(sent) == 0 {
		return
	}
	answers := make([]limit.Verdict, len(sent))
	err := r.ask(ctx, &call, &answers)
	for n, i := range sent {
		if err != nil {
			out[i].Err = err
			continue
		}
		outcomes := append(out[i].Outcomes[:0], answers[n].Outcomes...)
		out[i] = answers[n]
		out[i].Outcomes = outcomes
	}
}

func (r *remote) Forget(ctx context.Context, keys []limit.Key) error {
	return r.ask(ctx, &wireCall{What: "forget", Keys: keys}, new(bool))
}

func (r *remote) Ping(ctx context.Context) error {
	return r.ask(ctx, &wireCall{What: "ping"}, new(bool))
}

func (r *remote) Close() error { return nil }

// A server is the store that remotes talk to.
type server struct {
	addr string
	b    *reference
	ends map[limit.Key]limit.Instant // see stored

	mu     sync.Mutex
	lis    net.Listener
	conns  map[net.Conn]bool
	frozen chan struct{}
}

func (s *server) start(tb testing.TB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lis, err := net.Listen("tcp", s.addr)
	if err != nil {
		tb.Fatal(err)
	}
	s.lis, s.addr, s.conns = lis, lis.Addr().String(), map[net.Conn]bool{}
	go func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
}

func (s *server) kill(testing.TB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lis.Close()
	for conn := range s.conns {
		conn.Close()
	}
}

func (s *server) freeze(testing.TB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = make(chan struct{})
}

func (s *server) thaw(testing.TB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.frozen)
	s.frozen = nil
}

func (s *server) serve(conn net.Conn) {
	s.mu.Lock()
	s.conns[conn] = true
	frozen := s.frozen
	s.mu.Unlock()
	defer func() {
		conn.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, conn)
	}()
	if frozen != nil {
		<-frozen
	}
	var call wireCall
	if gob.NewDecoder(conn).Decode(&call) != nil {
		return
	}
	enc := gob.NewEncoder(conn)
	switch call.What {
	case "take":
		_ = enc.Encode(s.take(call.Reqs))
	case "forget":
		_ = enc.Encode(s.b.Forget(context.Background(), call.Keys) == nil)
	default:
		_ = enc.Encode(true)
	}
}

func (s *server) take(wire []wireRequest) []limit.Verdict {
	reqs, out := make([]limit.Request, len(wire)), make([]limit.Verdict, len(wire))
	for i := range wire {
		reqs[i].At = wire[i].At
		for _, op := range wire[i].Ops {
			reqs[i].Ops = append(reqs[i].Ops, limit.Op{
				Key: op.Key, Limit: limit.MustNew(op.Spec.Spec), Cost: op.Cost,
				Holder: op.Holder, Ending: op.Ending, AsOf: op.AsOf, Shadow: op.Shadow, Each: op.Each, Choice: op.Choice,
			})
		}
	}
	s.b.Take(context.Background(), reqs, out)
	return out
}

// stored drops what is over and counts the rest.
func (s *server) stored(testing.TB) int {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	for k := range s.b.states {
		if s.ends[k] <= s.b.clock() {
			delete(s.b.states, k)
		}
	}
	return len(s.b.states)
}

func newServer(t *testing.T) *server {
	s := &server{addr: "127.0.0.1:0", b: newReference(nil), ends: map[limit.Key]limit.Instant{}}
	s.b.out = func(req *limit.Request, _ *limit.Verdict) {
		for i := range req.Ops {
			op := &req.Ops[i]
			s.ends[op.Key] = op.Limit.Ends(s.b.states[op.Key])
		}
	}
	s.start(t)
	t.Cleanup(func() { s.kill(t) })
	return s
}

func TestRemoteBackendPassesTheSuite(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 15 s; TestReferencePassesTheSuite runs the same suite")
	}
	s := newServer(t)
	var trips atomic.Int64
	Run(t, Suite{
		Caps: referenceCaps(), Shared: true, Short: true, Rounds: 20,
		Open:  func(testing.TB) backends.Backend { return &remote{addr: s.addr, trips: &trips, caps: referenceCaps()} },
		Child: "TestChild", ChildEnv: []string{remoteEnv + "=" + s.addr},
		Trips: trips.Load, Stored: s.stored,
		Faults: &Faults{Freeze: s.freeze, Thaw: s.thaw, Kill: s.kill, Restart: s.start},
	})
}

func TestChild(t *testing.T) {
	Child(t, func(testing.TB) backends.Backend {
		return &remote{addr: os.Getenv(remoteEnv), trips: new(atomic.Int64), caps: referenceCaps()}
	})
}

// A faulty is a remote that is wrong in ways which only show on a network.
type faulty struct {
	*remote
	forgetful bool          // takes are answered twice
	late      time.Duration // with every error
	leak      bool
	private   *reference // decides by itself, in this process
}

func (f *faulty) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	if f.private != nil {
		f.private.Take(ctx, reqs, out)
		return
	}
	if f.leak {
		go time.Sleep(7 * time.Second)
	}
	f.remote.Take(ctx, reqs, out)
	if f.forgetful {
		f.remote.Take(ctx, reqs[:1], out)
	}
	if out[0].Err != nil {
		time.Sleep(f.late)
	}
}

func TestSuiteNoticesRemoteMutants(t *testing.T) {
	s := newServer(t)
	var trips atomic.Int64
	for name, m := range map[string]struct {
		check check
		f     faulty
	}{
		"one trip too many":      {check{"Trips", checkTrips}, faulty{forgetful: true}},
		"late by 100 ms":         {check{"Frozen", checkFrozen}, faulty{late: 100 * time.Millisecond}},
		"leaks goroutines":       {check{"CloseLeavesNothing", checkCloseLeavesNothing}, faulty{leak: true}},
		"each handle for itself": {check{"TwoHandles", checkTwoHandles}, faulty{private: newReference(nil)}},
		"processes apart":        {check{"Processes", checkProcesses}, faulty{private: newReference(nil)}},
		"leases apart":           {check{"LeasesProcesses", checkLeasesProcesses}, faulty{private: newReference(nil)}},
	} {
		t.Run(name, func(t *testing.T) {
			suite := Suite{
				Caps: referenceCaps(), Shared: true, Trips: trips.Load,
				Child: "TestChild", ChildEnv: []string{remoteEnv + "=" + s.addr},
				Faults: &Faults{Freeze: s.freeze, Thaw: s.thaw},
				Open: func(testing.TB) backends.Backend {
					f := m.f
					if f.private != nil {
						f.private = newReference(nil)
					}
					f.remote = &remote{addr: s.addr, trips: &trips, caps: referenceCaps()}
					return &f
				},
			}
			if !fails(t, m.check, suite) {
				t.Errorf("%s did not notice", m.check.name)
			}
		})
	}
}
