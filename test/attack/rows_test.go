package attack

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/protobuf/encoding/protowire"
)

// attacks is the table. Each attack is bounded in time and in what it sends. A
// row without bounds is measured only.
var attacks = []attack{
	{
		name: "none",
		run:  func(g *target) { time.Sleep(size(time.Second, 3*time.Second)) },
		want: bounds{peakMiB: 80, heldMiB: 16, cpu: 1.5},
	},
	{
		name: "repeated metadata headers",
		run:  repeatedMetadata,
		want: bounds{peakMiB: 90, heldMiB: 20, cpu: 1.5, lost: 0.05},
	},
	{
		name: "leases of large compressed messages",
		run:  leasesOfLargeMessages,
		want: bounds{peakMiB: 90, heldMiB: 20, cpu: 1.5, lost: 0.05},
	},
	{
		name: "half-sent requests on many connections",
		run:  halfSentRequests,
		want: bounds{peakMiB: 300, heldMiB: 150, cpu: 6, lost: 0.05},
	},
	{
		name: "messages that are too large",
		run:  tooLargeMessages,
		want: bounds{peakMiB: 200, heldMiB: 80, cpu: 6, lost: 0.05},
	},
	{
		name: "half-sent requests on many connections, by grpc-go", flags: []string{"--transport", "grpc"},
		run:  halfSentToGRPC,
		want: bounds{peakMiB: 500, heldMiB: 300, cpu: 10, lost: 0.1},
	},
	{
		name: "SETTINGS that change all windows",
		run:  settingsFlood,
		want: bounds{peakMiB: 90, heldMiB: 20, cpu: 1.5, lost: 0.05},
	},
	{
		name: "messages that decompress to much",
		run:  gzipFlood,
		want: bounds{peakMiB: 90, heldMiB: 20, cpu: 1.5, lost: 0.05},
	},
	{
		name: "requests in JSON that decode to much",
		run:  largeJSON,
		want: bounds{peakMiB: 300, heldMiB: 20, cpu: 10, lost: 0.1},
	},
	{
		name: "answers that nobody reads",
		run:  unreadAnswers,
		want: bounds{peakMiB: 300, heldMiB: 150, cpu: 6, lost: 0.1},
	},
	{
		name: "the longest paths",
		run:  longPaths,
		want: bounds{peakMiB: 90, heldMiB: 20, cpu: 3, lost: 0.05},
	},
	{
		name: "reports of the largest cost",
		run:  largestReports,
		want: bounds{peakMiB: 120, heldMiB: 48, cpu: 3, lost: 0.05},
	},
	{
		name: "reports of the largest cost, in Redis", redis: true,
		run:  largestReports,
		want: bounds{peakMiB: 120, heldMiB: 48, cpu: 6, lost: 0.1},
	},
	{
		name: "more calls than Redis answers, one connection", redis: true,
		run: func(g *target) { floodOfCalls(g, 1) },
		// Where other work starves Redis itself, some are admitted by policy.
		want: bounds{peakMiB: 160, heldMiB: 48, cpu: 6, lost: 0.2, uncounts: 5000},
	},
	{name: "more calls than Redis answers, 16 connections", redis: true, run: func(g *target) { floodOfCalls(g, 16) }},
}

// repeatedMetadata opens all streams that it may, each with a header that
// headgate keeps, many times: one byte each, from the table of HPACK.
func repeatedMetadata(g *target) {
	fields := []string{":method", "POST", ":scheme", "http", ":path", methodDecide, "content-type", "application/grpc"}
	for range 7 { // within the bound on a header list
		fields = append(fields, "x-headgate-id", strings.Repeat("v", 3800))
	}
	for range size(1, 4) {
		w := g.connect()
		for range w.most {
			w.open(fields...)
		}
		w.flush()
	}
	time.Sleep(time.Second)
}

// leasesOfLargeMessages has leases granted by messages of a few hundred bytes
// that are 250 KiB when they are decompressed.
func leasesOfLargeMessages(g *target) {
	body := prefixed(1, zipped(request("slow", "a", 250<<10)))
	for range size(1, 3) {
		w := g.connect()
		for i := range int64(1024) {
			w.call(body, headers(methodDecide, "grpc-encoding", "gzip")...)
			if !w.flush() {
				break
			}
			waitUntil(time.Second, func() bool { return w.closed.Load() || i-w.answered.Load()-w.reset.Load() < 3 })
		}
		waitUntil(2*time.Second, func() bool { return w.closed.Load() || w.answered.Load()+w.reset.Load() == 1024 })
		g.note("%d granted", w.replies.Load())
	}
}

// halfSentRequests sends nearly a MiB of requests on each of many connections, no
// end of any, and goes on with small ones, so that what is dropped is replaced.
func halfSentRequests(g *target) {
	part := prefixed(0, make([]byte, 16<<10))
	begin := func(w *wire, n int) {
		_ = w.fr.WriteData(w.open(headers(methodDecide)...), false, part[:n])
	}
	for range 300 {
		w := g.connect()
		for range 60 {
			begin(w, 16<<10)
		}
		w.flush()
	}
	for end := time.Now().Add(size(2*time.Second, 4*time.Second)); time.Now().Before(end); {
		for _, w := range g.conns {
			begin(w, 1000)
			w.flush()
		}
	}
}

// tooLargeMessages sends the beginnings of messages of 4 GiB on many connections. Every other
// request ends there, and is refused.
func tooLargeMessages(g *target) {
	part := append([]byte{0, 0xff, 0xff, 0xff, 0xff}, make([]byte, 16<<10)...)[:16<<10]
	begin := func(w *wire, n int, end bool) {
		_ = w.fr.WriteData(w.open(headers(methodDecide)...), end, part[:n])
	}
	for range 300 {
		w := g.connect()
		for i := range 60 {
			begin(w, 16<<10, i%2 == 0)
		}
		w.flush()
	}
	for end := time.Now().Add(size(2*time.Second, 4*time.Second)); time.Now().Before(end); {
		for _, w := range g.conns {
			begin(w, 1000, true)
			w.flush()
		}
	}
	replies := int64(0)
	for _, w := range g.conns {
		replies += w.replies.Load()
	}
	g.note("%d refused", replies)
}

// halfSentToGRPC sends, on many connections, as many requests as the window of a
// connection allows, and no end of any.
func halfSentToGRPC(g *target) {
	part := prefixed(0, make([]byte, 1000))[:60]
	for range 60 {
		w := g.connect()
		for range 1000 {
			_ = w.fr.WriteData(w.open(headers(methodDecide)[:12]...), false, part)
		}
		w.flush()
	}
	time.Sleep(2 * time.Second)
	v, err := g.hg.Metrics(`headgate_requests_total{code="ResourceExhausted",transport="grpc"}`)
	g.note("%v refused %v", v, err)
}

// settingsFlood changes the window of all streams as often as a frame can say.
func settingsFlood(g *target) {
	w := g.connect()
	for range w.most {
		w.open(headers(methodDecide)...)
	}
	var settings []http2.Setting
	for i := range 128 {
		settings = append(settings, http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(1000 + i)})
	}
	for i := range size(1500, 6000) {
		_ = w.fr.WriteSettings(settings...)
		if i%16 == 0 && !w.flush() {
			break
		}
	}
	w.flush()
	g.note("all handled: %v, closed by headgate: %v", w.handled(20*time.Second), w.closed.Load())
}

// gzipFlood sends messages of a few hundred bytes that are 250 KiB when they are
// decompressed.
func gzipFlood(g *target) {
	w := g.connect()
	body := prefixed(1, zipped(request("free", "a", 250<<10)))
	for i := range int64(size(1000, 10_000)) {
		w.call(body, headers(methodDecide, "grpc-encoding", "gzip")...)
		if !w.flush() {
			break
		}
		waitUntil(time.Second, func() bool { return w.closed.Load() || i-w.answered.Load()-w.reset.Load() < 3 })
	}
	g.note("all handled: %v, %d answered, closed by headgate: %v", w.handled(10*time.Second), w.replies.Load(),
		w.closed.Load())
}

// longPaths asks about five descriptors at a time, each with a path as long as
// Envoy lets one be, that take the longest to be brought into their normal form.
func longPaths(g *target) {
	message := field(nil, 1, []byte("attack"))
	for _, what := range []string{"/%2e", "/x/..", "/..", "/%", ";/%61"} {
		path := strings.Repeat(what, (60<<10-8)/len(what)) + "/api/pay"
		if path[0] != '/' {
			path = "/" + path
		}
		method := field(field(nil, 1, []byte("method")), 2, []byte("GET"))
		d := field(field(nil, 1, method), 1, field(field(nil, 1, []byte("path")), 2, []byte(path)))
		message = field(message, 2, d)
	}
	w := g.connect()
	body := prefixed(0, message)
	for i := range int64(size(200, 400)) {
		id := w.open(headers(methodDecide)...)
		for part := range slices.Chunk(body, 16<<10) {
			_ = w.fr.WriteData(id, false, part)
		}
		_ = w.fr.WriteData(id, true, nil)
		if !w.flush() {
			break
		}
		waitUntil(time.Second, func() bool { return w.closed.Load() || i-w.answered.Load()-w.reset.Load() < 1 })
	}
	g.note("all handled: %v, %d answered, closed by headgate: %v", w.handled(10*time.Second), w.replies.Load(),
		w.closed.Load())
}

// largestReports reports costs of 2^32-1 units to limits of a thousand: half of them to
// one key, half to a key each. What a limit keeps of a cost must not grow with it.
func largestReports(g *target) {
	w := g.connect()
	for i := range int64(size(2000, 10_000)) {
		value := "one"
		if i%2 == 0 {
			value = fmt.Sprint("key", i)
		}
		report := protowire.AppendVarint(protowire.AppendTag(request("usage", value, 0), 3, protowire.VarintType),
			math.MaxUint32)
		w.call(prefixed(0, report), headers(methodDecide)...)
		if !w.flush() {
			break
		}
		waitUntil(time.Second, func() bool { return w.closed.Load() || i-w.answered.Load()-w.reset.Load() < 64 })
	}
	waitUntil(10*time.Second, func() bool {
		return w.closed.Load() || w.answered.Load()+w.reset.Load() == int64(w.next/2)
	})
	g.note("%d answered, closed by headgate: %v", w.replies.Load(), w.closed.Load())
}

// largeJSON posts, on many connections at a time, texts of which every three bytes
// become a message.
func largeJSON(g *target) {
	body := `{"domain":"attack","descriptors":[{}` + strings.Repeat(",{}", 170_000) + "]}"
	codes := make([]atomic.Int64, 600)
	var clients sync.WaitGroup
	for range size(100, 300) {
		clients.Go(func() {
			client := http.Client{Transport: new(http.Transport)}
			defer client.CloseIdleConnections()
			resp, err := client.Post("http://"+g.hg.HTTP+"/json", "application/json", strings.NewReader(body))
			g.sent.Add(int64(len(body)))
			if err != nil { // the body was refused before all of it was sent
				codes[0].Add(1)
				return
			}
			codes[resp.StatusCode].Add(1)
			_ = resp.Body.Close()
		})
	}
	clients.Wait()
	for code := range codes {
		if n := codes[code].Load(); n > 0 {
			g.note("%d: %d", code, n)
		}
	}
}

// unreadAnswers makes, on many connections, calls whose answers are many times
// as large, and gives them no window.
func unreadAnswers(g *target) {
	entry := field(field(nil, 1, []byte("free")), 2, []byte("a"))
	message := field(nil, 1, []byte("attack"))
	for range 60 { // a few less than a request may have limits
		message = field(message, 2, field(nil, 1, entry))
	}
	body := prefixed(1, zipped(message))
	for range size(100, 300) {
		w := g.connect(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for range min(w.most, 1024) {
			w.call(body, headers(methodDecide, "grpc-encoding", "gzip")...)
		}
		if !w.flush() {
			break
		}
	}
	time.Sleep(time.Second)
	v, err := g.hg.Metrics(`headgate_requests_total{code="OK",transport="unary"}`,
		`headgate_floods_total{transport="unary"}`)
	g.note("%v (calls answered, connections closed for a flood) %v", v, err)
}

// floodOfCalls sends more calls than the store can answer, as many at a time
// as it may, on n connections.
func floodOfCalls(g *target, n int) {
	body := prefixed(0, request("free", "attacker", 0))
	var all []*wire
	for range n {
		w := g.connect()
		w.onData = func(message []byte) {
			if bytes.Contains(message, []byte("degraded")) && bytes.Contains(message, []byte("allow")) {
				g.uncounts.Add(1)
			}
		}
		all = append(all, w)
	}
	var sent int64
	for end := time.Now().Add(size(2*time.Second, 5*time.Second)); time.Now().Before(end); {
		for _, w := range all {
			room := int64(w.most) - (int64(w.next/2) - w.answered.Load() - w.reset.Load())
			for range min(room, 256) {
				w.call(body, headers(methodDecide)...)
				sent++
			}
			w.flush()
		}
	}
	waitUntil(3*time.Second, func() bool {
		var answered int64
		for _, w := range all {
			answered += w.answered.Load() + w.reset.Load()
		}
		return answered >= sent
	})
	g.note("%d calls", sent)
}
