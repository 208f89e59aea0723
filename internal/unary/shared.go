package unary

import "context"

// shared is what all connections of a server share.
type shared struct {
	conf     Config
	handlers map[string]*handler
	ctx      context.Context // of the handlers; ends at Close
	stop     context.CancelFunc
	counters counters
	events   eventLog
	pool     *memoryPool
	tasks    tasks
}

func newShared(conf Config) *shared {
	s := &shared{
		conf:     conf,
		handlers: make(map[string]*handler, len(conf.Handlers)),
		pool:     newMemoryPool(conf.MaxBuffered),
		tasks:    tasks{panics: conf.Panics},
	}
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

// inline calls Inline, and fails the calls if it panics.
func (s *shared) inline(h *handler, calls []*Call) (rest []*Call) {
	if !s.guard(h, func() { rest = h.Inline(s.ctx, calls) }) {
		failAll(calls)
		return nil
	}
	return rest
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
