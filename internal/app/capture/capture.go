package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
)

// A Hub has what is asked captured, by all who want it. It is a [ratelimit.Tap].
type Hub struct {
	log     *slog.Logger
	streams atomic.Pointer[[]*stream] // nil or empty: nobody wants it
	mu      sync.Mutex                // held to change streams

	conf    Config
	file    *file                  // the first one; nil without --capture
	again   time.Duration          // how long to wait until a file is tried again that could not be written
	problem atomic.Pointer[string] // why the file cannot be written; nil: it can
	failed  metrics.Counter
	lines   metrics.Counter // of streams that have ended
	dropped metrics.Counter
}

var _ ratelimit.Tap = (*Hub)(nil)

// New returns a hub that captures into a file, unless its name is empty. [Hub.Run] writes the file.
func New(c Config, log *slog.Logger) (*Hub, error) {
	h := &Hub{log: log, conf: c, again: fileAgain}
	if c.File == "" {
		return h, nil
	}
	ignoreSizeSignal()
	var err error
	h.file, err = h.open()
	return h, err
}

// open opens the file, and has what is asked captured into it.
func (h *Hub) open() (*file, error) {
	f := &file{stream: newStream(h.conf), written: h.goesOn}
	if err := f.open(); err != nil {
		return nil, err
	}
	if err := h.add(f.stream); err != nil {
		return nil, errors.Join(err, f.f.Close())
	}
	return f, nil
}

func (h *Hub) counts() (lines, dropped int64) {
	lines, dropped = h.lines.Value(), h.dropped.Value()
	for _, s := range h.list() {
		l, d := s.counts()
		lines, dropped = lines+l, dropped+d
	}
	return lines, dropped
}

func (h *Hub) list() []*stream {
	if p := h.streams.Load(); p != nil {
		return *p
	}
	return nil
}

// Active implements [ratelimit.Tap].
func (h *Hub) Active() bool { return len(h.list()) > 0 }

// See implements [ratelimit.Tap].
func (h *Hub) See(a *ratelimit.Asked) {
	for _, s := range h.list() {
		s.see(a)
	}
}

// Ended implements [ratelimit.Tap].
func (h *Hub) Ended(holder string, how ratelimit.ReservationEnd, cost int64) {
	for _, s := range h.list() {
		s.ended(holder, limit.InstantOf(time.Now()), how, cost)
	}
}

// Renewed implements [ratelimit.Tap]. A line says when its request has ended, however often it was renewed.
func (h *Hub) Renewed(string) {}

// maxStreams bounds the captures at a time.
const maxStreams = 4

var errBusy = fmt.Errorf("%d captures are running; that is as many as there may be", maxStreams)

func (h *Hub) add(s *stream) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.list()
	if len(list) >= maxStreams {
		return errBusy
	}
	list = append(list[:len(list):len(list)], s)
	h.streams.Store(&list)
	return nil
}

func (h *Hub) remove(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(h.list()), func(other *stream) bool { return other == s })
	h.streams.Store(&list)
	lines, dropped := s.counts()
	h.lines.Add(lines)
	h.dropped.Add(dropped)
}

// fileAgain is how long to wait until a file is tried again that could not be written.
const fileAgain = 10 * time.Second

// Run writes the file until ctx ends. While it cannot be written, the capture stops, and nothing else does.
func (h *Hub) Run(ctx context.Context) {
	if h.file == nil {
		return
	}
	h.stops(h.write(ctx, h.file))
	for background.Sleep(ctx, h.again) == nil {
		f, err := h.open()
		if err == nil {
			err = h.write(ctx, f)
		}
		h.stops(err)
	}
}

// write writes the lines of a file until ctx ends, or it cannot be written.
func (h *Hub) write(ctx context.Context, f *file) error {
	defer h.remove(f.stream)
	err := h.copy(ctx, f.stream, f)
	return errors.Join(err, f.f.Close())
}

// stops notes why the file cannot be written, if there is an error. The log says so once, until it can.
func (h *Hub) stops(err error) {
	if err == nil {
		return
	}
	text := err.Error()
	if h.problem.Swap(&text) == nil {
		h.failed.Inc()
		h.log.Error("the capture of requests has stopped until its file can be written; requests are answered as before",
			"file", h.conf.File, "error", err)
	}
}

// goesOn notes that lines were written into the file.
func (h *Hub) goesOn() {
	if h.problem.Swap(nil) != nil {
		h.log.Info("the capture of requests goes on", "file", h.conf.File)
	}
}

// Problem says why nothing is captured into the file; "" if it is.
func (h *Hub) Problem() string {
	if p := h.problem.Load(); p != nil {
		return *p
	}
	return ""
}

// writeEvery is how long lines wait for others, to be written together.
const writeEvery = 50 * time.Millisecond

// copy writes the lines of a stream until ctx ends, and then those that wait.
func (h *Hub) copy(ctx context.Context, s *stream, to io.Writer) error {
	var memory []byte
	sweep := time.NewTicker(pendingFor / 10)
	defer sweep.Stop()
	write := func() error {
		lines := s.take(memory)
		memory = lines
		if len(lines) == 0 {
			return nil
		}
		_, err := to.Write(lines)
		return err
	}
	for {
		select {
		case <-ctx.Done():
			s.giveUp(limit.MaxInstant)
			return write()
		case <-sweep.C:
			s.giveUp(limit.InstantOf(time.Now().Add(-pendingFor)))
		case <-s.ready:
			if err := write(); err != nil {
				return err
			}
			_ = background.Sleep(ctx, writeEvery)
		}
	}
}

// A file is a capture on the disk: FILE, and FILE.1 that was FILE before.
type file struct {
	*stream
	f       *os.File
	size    int64
	written func() // is called when lines were written
}

func (f *file) open() (err error) {
	// Checked before opening, too: opening a pipe would wait for a reader.
	if info, err := os.Stat(f.File); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", f.File)
	}
	if f.f, err = os.OpenFile(f.File, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return err
	}
	info, err := f.f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", f.File)
	}
	if err != nil {
		_ = f.f.Close()
		return err
	}
	f.size = info.Size()
	return nil
}

// Write appends whole lines. If they cannot be written, none of them stays.
func (f *file) Write(lines []byte) (int, error) {
	if f.size > 0 && f.size+int64(len(lines)) > f.Max/2 {
		if err := f.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := f.f.Write(lines)
	if err != nil {
		return 0, errors.Join(err, f.f.Truncate(f.size))
	}
	f.size += int64(n)
	f.written()
	return n, nil
}

// rotate begins a new file.
func (f *file) rotate() error {
	if err := f.f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.File, f.File+".1"); err != nil {
		return err
	}
	return f.open()
}
