package unary

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/headgate-rls/headgate/internal/kit/memory"
)

// shared is what all connections of a server share.
type shared struct {
	conf         Config
	handlers     map[string]*handler
	ctx          context.Context // of the handlers; ends at Close
	stop         context.CancelFunc
	counters     counters
	events       eventLog
	pool         *memory.Pool
	requestBytes atomic.Int64  // of all connections, but for the first 2 KiB of each request
	inlining     chan struct{} // full while as many Inline functions run as may
	floods       floods
	tasks        tasks
}

func newShared(conf Config) *shared {
	s := &shared{
		conf:     conf,
		handlers: make(map[string]*handler, len(conf.Handlers)),
		pool:     conf.Memory,
		inlining: make(chan struct{}, inlinePerCPU*runtime.GOMAXPROCS(0)),
		tasks:    tasks{panics: conf.Panics},
	}
	s.floods.init(runtime.GOMAXPROCS(0))
	for name, h := range conf.Handlers {
		s.handlers[name] = &handler{Handler: h, method: name}
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

var errPanic = &Status{Internal, "the handler failed"}

// guard runs f, which calls a function of a handler. If that panics, guard reports
// it and returns false.
func (s *shared) guard(h *handler, f func()) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			_ = s.conf.Panics.Report(h.method, p) // the client gets errPanic and no more
		}
	}()
	f()
	return true
}

// A slice of calls can need some MiB while it is decided, which the pool does not count.
// Go may interrupt Inline at any point to let other connections run, so without a bound
// each connection could have such a slice. Small slices need no turn: they need little
// memory and are seldom interrupted.
const (
	inlinePerCPU = 2       // large slices that are decided at a time, for each CPU
	smallSlice   = 1 << 10 // bytes of messages
)

// inline calls Inline, with many bytes in its turn, and fails the calls if it panics.
func (s *shared) inline(h *handler, calls []*Call) (rest []*Call) {
	if messageBytes(calls) > smallSlice {
		s.takeTurn()
		defer func() { <-s.inlining }()
	}
	if !s.guard(h, func() { rest = h.Inline(s.ctx, calls) }) {
		failAll(calls)
		return nil
	}
	return rest
}

// takeTurn waits for a turn. A goroutine that gives a turn back makes the next
// one run before all others that can run, so this lets those go first.
func (s *shared) takeTurn() {
	select {
	case s.inlining <- struct{}{}:
	default:
		s.inlining <- struct{}{}
		runtime.Gosched()
	}
}

func messageBytes(calls []*Call) (n int) {
	for _, c := range calls {
		n += len(c.Message)
	}
	return n
}

// abandoned hands a call that nobody waits for to its handler, if that wants to
// know.
func (s *shared) abandoned(st *stream) {
	if st.h != nil && st.h.Abandoned != nil {
		s.guard(st.h, func() { st.h.Abandoned(&st.call) })
	}
}

// callUndo undoes an answer that the client did not take.
func (s *shared) callUndo(undo func()) {
	_ = s.conf.Panics.Do("undo", undo) // it is reported
}

func failAll(calls []*Call) {
	for _, call := range calls {
		if call != nil {
			call.Err = errPanic
		}
	}
}
