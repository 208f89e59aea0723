package accesslog

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	datapb "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	als "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headgate-rls/headgate/ratelimit/leases"
	"github.com/headgate-rls/headgate/test/rawcodec"
)

// TestEntriesRenewAndEndLeases: what an entry says by its type, flag and metadata.
func TestEntriesRenewAndEndLeases(t *testing.T) {
	flagged := func(e *datapb.HTTPAccessLogEntry, intermediate bool) *datapb.HTTPAccessLogEntry {
		//lint:ignore SA1019 Envoy still sends it
		e.CommonProperties.IntermediateLogEntry = intermediate
		return e
	}
	invalid := entry(end, "a")
	invalid.CommonProperties.Metadata.FilterMetadata[rateLimit].Fields["lease"] = &structpb.Value{}
	twoKeys := map[string]any{"lease": "a", "stream_lease": "b", "third": "c"}
	for name, c := range map[string]struct {
		entry *datapb.HTTPAccessLogEntry
		conf  Config
		want  string // calls
		event leases.LogEvent
	}{
		"periodic":              {entry: entry(periodic, "a"), want: "renew a", event: leases.EntryRenews},
		"periodic without flag": {entry: flagged(entry(periodic, "a"), false), want: "renew a", event: leases.EntryRenews},
		"end":                   {entry: entry(end, "a"), want: "end a", event: leases.EntryReleases},
		"end with flag":         {entry: flagged(entry(end, "a"), true), want: "end a", event: leases.EntryReleases},
		"no type, intermediate": {entry: flagged(entry(datapb.AccessLogType_NotSet, "a"), true), want: "renew a",
			event: leases.EntryRenews},
		"no type": {entry: entry(datapb.AccessLogType_NotSet, "a"), want: "end a",
			event: leases.EntryReleases},
		"pool ready, intermediate": {entry: flagged(entry(datapb.AccessLogType_UpstreamPoolReady, "a"), true),
			want: "renew a", event: leases.EntryRenews},
		"upstream end":   {entry: entry(datapb.AccessLogType_UpstreamEnd, "a"), event: leases.EntryIgnored},
		"start":          {entry: entry(datapb.AccessLogType_DownstreamStart, "a"), event: leases.EntryIgnored},
		"a type to come": {entry: entry(99, "a"), event: leases.EntryIgnored},

		"no lease":    {entry: entry(end, nil), event: leases.EntryIgnored},
		"empty lease": {entry: entry(end, ""), event: leases.EntryIgnored},
		"number":      {entry: entry(end, 12.5), event: leases.EntryIgnored},
		"boolean":     {entry: entry(end, true), event: leases.EntryIgnored},
		"list":        {entry: entry(end, []any{"a"}), event: leases.EntryIgnored},
		"struct":      {entry: entry(end, map[string]any{"lease": "a"}), event: leases.EntryIgnored},
		"value unset": {entry: invalid, event: leases.EntryIgnored},
		"longest": {entry: entry(end, strings.Repeat("x", 4096)), want: "end " + strings.Repeat("x", 4096),
			event: leases.EntryReleases},
		"too long": {entry: entry(end, strings.Repeat("x", 4097)), event: leases.EntryIgnored},
		"other namespace": {entry: entryWith(end, map[string]map[string]any{"other": {"lease": "a"}}),
			event: leases.EntryIgnored},
		"no metadata": {entry: &datapb.HTTPAccessLogEntry{CommonProperties: &datapb.AccessLogCommon{}},
			event: leases.EntryIgnored},
		"no properties": {entry: &datapb.HTTPAccessLogEntry{}, event: leases.EntryIgnored},
		"several keys": {
			entry: entryWith(end, map[string]map[string]any{rateLimit: twoKeys}),
			conf:  Config{Keys: []string{"stream_lease", "lease", "absent"}}, want: "end a b", event: leases.EntryReleases,
		},
		"several namespaces": {
			entry: entryWith(periodic, map[string]map[string]any{"n1": {"lease": "a"}, "n2": {"lease": "b"},
				rateLimit: {"lease": "c"}}),
			conf: Config{Namespaces: []string{"n2", "n1"}}, want: "renew a b", event: leases.EntryRenews,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := setup(t, nil, c.conf)
			s := h.open()
			h.send(s, from("envoy-1", message(c.entry)))
			h.finish(s)
			got := h.leases.got()
			for i, call := range got {
				words := strings.Fields(call)
				slices.Sort(words[1:]) // maps have no order
				got[i] = strings.Join(words, " ")
			}
			if strings.Join(got, "; ") != c.want {
				t.Errorf("calls %q, want %q", got, c.want)
			}
			if h.counts.get(c.event) != 1 {
				t.Errorf("%d %v", h.counts.get(c.event), c.event)
			}
		})
	}
}

// TestWaitingMessagesGoTogether: the tokens of a message go together, renewals first, and messages
// are done in their order.
func TestWaitingMessagesGoTogether(t *testing.T) {
	h := setup(t, nil, Config{})
	h.leases.gate = make(chan struct{})
	s := h.open()
	h.send(s, from("envoy-1", message(entry(periodic, "a"), entry(end, "b"), entry(periodic, "c"), entry(end, "c"),
		entry(end, nil), entry(periodic, "d"))))
	h.leases.gate <- struct{}{}
	h.leases.gate <- struct{}{}
	h.eventually("the first message is done", func() bool { return len(h.leases.got()) == 2 })
	close(h.leases.gate)
	h.send(s, message(entry(end, "a")))
	h.finish(s)
	h.wantCalls("renew a c d", "end b c", "end a")
	if n := h.counts.get(leases.EntryIgnored); n != 1 {
		t.Errorf("%d without a lease", n)
	}
}

// TestSlowBackendGetsLargerCalls: what comes while the backend is asked goes together in the
// next call, and what no call answers is left behind.
func TestSlowBackendGetsLargerCalls(t *testing.T) {
	h := setup(t, nil, Config{Timeout: 20 * time.Millisecond})
	h.leases.gate = make(chan struct{})
	s := h.open()
	const messages = 300
	for i := range messages {
		h.send(s, from("envoy-1", message(entry(end, strconv.Itoa(i)))))
	}
	h.finish(s)
	var tokens []string
	for _, call := range h.leases.got() {
		tokens = append(tokens, strings.Fields(call)[1:]...)
	}
	if len(tokens) != messages || tokens[0] != "0" || tokens[messages-1] != strconv.Itoa(messages-1) {
		t.Errorf("%d tokens: %q", len(tokens), tokens)
	}
	if n := len(h.leases.got()); n == messages || h.leases.late != n {
		t.Errorf("%d calls, %d of them late", n, h.leases.late)
	}
}

// TestBackPressureLosesNothing: what waits for the backend is bounded, and nothing of it is
// lost.
func TestBackPressureLosesNothing(t *testing.T) {
	h := setup(t, nil, Config{})
	h.leases.gate = make(chan struct{})
	s := h.open()
	token := strings.Repeat("x", 4000)
	const messages = 4 * maxWaiting / 40_000
	sent := make(chan error, 1)
	go func() {
		for range messages {
			list := make([]*datapb.HTTPAccessLogEntry, 10)
			for i := range list {
				list[i] = entry(end, token)
			}
			if err := s.Send(message(list...)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	select {
	case err := <-sent:
		t.Errorf("all was read while the backend did nothing: %v", err)
		sent <- nil
	case <-time.After(300 * time.Millisecond):
	}
	close(h.leases.gate)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	h.finish(s)
	all := 0
	for _, call := range h.leases.got() {
		n := strings.Count(call, "x") / len(token)
		all += n
		if n*(len(token)+tokenOverhead) > maxWaiting {
			t.Errorf("%d tokens waited", n)
		}
	}
	if all != 10*messages {
		t.Errorf("%d tokens, want %d", all, 10*messages)
	}
}

// TestEntriesBeyondTheBoundAreCounted: entries beyond the bound are counted and logged.
func TestEntriesBeyondTheBoundAreCounted(t *testing.T) {
	h := setup(t, nil, Config{MaxEntries: 3})
	s := h.open()
	var list []*datapb.HTTPAccessLogEntry
	for i := range 8 {
		list = append(list, entry(end, strconv.Itoa(i)))
	}
	h.send(s, from("envoy-1", message(list...)))
	h.finish(s)
	h.wantCalls("end 0 1 2")
	if n := h.counts.get(leases.EntryDropped); n != 5 || !strings.Contains(h.log.String(), "dropped=5") {
		t.Errorf("%d dropped: %s", n, &h.log)
	}
}

// TestBadMessagesDisturbNoStream: nothing that a message holds disturbs its stream.
func TestBadMessagesDisturbNoStream(t *testing.T) {
	h := setup(t, nil, Config{})
	s := h.open()
	tcp := &als.StreamAccessLogsMessage{LogEntries: &als.StreamAccessLogsMessage_TcpLogs{
		TcpLogs: &als.StreamAccessLogsMessage_TCPAccessLogEntries{
			LogEntry: []*datapb.TCPAccessLogEntry{{CommonProperties: entry(end, "tcp").CommonProperties}}}}}
	h.send(s, &als.StreamAccessLogsMessage{}, tcp, message(), message(entry(end, "a")))
	h.finish(s)
	// With these, generated code refuses the whole message.
	raw, err := h.conn.NewStream(t.Context(), &als.AccessLogService_ServiceDesc.Streams[0],
		als.AccessLogService_StreamAccessLogs_FullMethodName, grpc.ForceCodecV2(rawcodec.Codec{}))
	if err != nil {
		t.Fatal(err)
	}
	notUTF8 := entry(end, "b")
	notUTF8.Request.Path = "/?? caf"
	encoded, err := proto.Marshal(message(notUTF8))
	if err != nil {
		t.Fatal(err)
	}
	encoded = []byte(strings.Replace(string(encoded), "/?? caf", "/\xff\xfe caf", 1))
	if proto.Unmarshal(encoded, new(als.StreamAccessLogsMessage)) == nil {
		t.Error("the message is no test")
	}
	broken := []byte{fieldMessageHTTP<<3 | 2, 4, fieldEntriesEntry<<3 | 2, 2, fieldEntryCommon<<3 | 2, 9}
	for _, m := range [][]byte{encoded, broken} {
		if err := raw.SendMsg(&m); err != nil {
			t.Fatal(err)
		}
	}
	var answer []byte
	if err := raw.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := raw.RecvMsg(&answer); err != nil {
		t.Fatal(err)
	}
	h.wantCalls("end a", "end b")
	if n := h.counts.get(leases.EntryMalformed); n != 1 {
		t.Errorf("%d malformed", n)
	}
	if !strings.Contains(h.log.String(), "malformed=1") {
		t.Errorf("log: %s", &h.log)
	}
}

// TestStreamStandsForTheOwnersOfItsLeases: a stream stands for the owners whose leases it has brought, and
// for nobody that it only names, until it ends.
func TestStreamStandsForTheOwnersOfItsLeases(t *testing.T) {
	h := setup(t, nil, Config{})
	a1, a2, b := h.open(), h.open("x-headgate-owner", "b"), h.open()
	h.send(a1, from("b", message(entry(end, "a/1"))))
	h.send(a2, message(entry(periodic, "a/2"), entry(periodic, "a/3"), entry(periodic, "c/1")))
	h.send(b, from("b", message(entry(end, "forged"))))
	h.eventually("all is done", func() bool {
		return h.leases.logs("a") == 2 && h.leases.logs("c") == 1 && len(h.leases.got()) == 3
	})
	if n := h.leases.logs("b"); n != 0 {
		t.Errorf("%d streams stand for who was only named", n)
	}
	h.finish(a2)
	h.eventually("one is over", func() bool { return h.leases.logs("a") == 1 && h.leases.logs("c") == 0 })
	h.finish(a1)
	h.eventually("both are", func() bool { return h.leases.logs("a") == 0 })
}

// TestOwnersOfAStreamAreBounded: one stream stands for a bounded number of owners.
func TestOwnersOfAStreamAreBounded(t *testing.T) {
	h := setup(t, nil, Config{})
	s := h.open()
	var list []*datapb.HTTPAccessLogEntry
	for i := range 10 * maxOwners {
		list = append(list, entry(periodic, strconv.Itoa(i)+"/1"))
	}
	h.send(s, message(list...))
	h.eventually("it is done", func() bool { return len(h.leases.got()) > 0 })
	n := 0
	h.eventually("they are watched", func() bool {
		n = 0
		for i := range 10 * maxOwners {
			n += h.leases.logs(strconv.Itoa(i))
		}
		return n >= maxOwners
	})
	if n != maxOwners {
		t.Errorf("it stands for %d owners, want %d", n, maxOwners)
	}
	h.finish(s)
}

// TestEndsAreDelayed: an end is passed on after the call about it has had time, and
// at once when the stream ends or the server has kept back too much.
func TestEndsAreDelayed(t *testing.T) {
	h := setup(t, nil, Config{EndDelay: time.Hour})
	s := h.open()
	h.send(s, message(entry(end, "a"), entry(periodic, "b")))
	h.eventually("the renewal is done", func() bool { return len(h.leases.got()) == 1 })
	h.wantCalls("renew b")
	h.finish(s)
	h.wantCalls("renew b", "end a")

	h = setup(t, nil, Config{EndDelay: 50 * time.Millisecond})
	s = h.open()
	start := time.Now()
	h.send(s, message(entry(end, "a")))
	h.eventually("it is passed on", func() bool { return len(h.leases.got()) == 1 })
	if took := time.Since(start); took < 50*time.Millisecond {
		t.Errorf("passed on after %v", took)
	}
	h.finish(s)

	h = setup(t, nil, Config{EndDelay: time.Hour})
	s = h.open()
	token := strings.Repeat("x", 4000)
	for range 2 * maxWaiting / 4000 {
		h.send(s, message(entry(end, token)))
	}
	h.eventually("ends beyond the bound are passed on", func() bool { return len(h.leases.got()) > 0 })
	h.finish(s)
}

// TestSilentStreamIsEnded: who opens a stream and says nothing keeps nobody out.
func TestSilentStreamIsEnded(t *testing.T) {
	h := setup(t, nil, Config{MaxStreams: 3, MaxStreamsPerPeer: 3, FirstEntry: 200 * time.Millisecond})
	busy := h.open()
	h.send(busy, message(entry(end, "a")))
	silent := h.open()
	if err := silent.RecvMsg(new(als.StreamAccessLogsResponse)); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a silent stream ends with %v", err)
	}
	h.send(busy, message(entry(end, "b")))
	h.finish(busy)
	h.wantCalls("end a", "end b")
}

// TestStreamsAreBounded: a stream beyond the bound is refused until another ends.
func TestStreamsAreBounded(t *testing.T) {
	h := setup(t, nil, Config{MaxStreams: 2, MaxStreamsPerPeer: 2})
	first, second := h.open(), h.open()
	h.eventually("two are open", func() bool { return h.counts.get(leases.StreamOpened) == 2 })
	for range 3 {
		if _, err := h.open().CloseAndRecv(); status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
	}
	if n := h.counts.get(leases.StreamRefused); n != 3 || !strings.Contains(h.log.String(), "too many streams") {
		t.Errorf("%d refused: %s", n, &h.log)
	}
	h.finish(first)
	h.eventually("there is room again", func() bool {
		_, err := h.open().CloseAndRecv()
		return err == nil
	})
	h.send(second, message(entry(end, "a")))
	h.finish(second)
	h.wantCalls("end a")
	h.eventually("all are closed", func() bool {
		return h.counts.get(leases.StreamClosed) == h.counts.get(leases.StreamOpened)
	})
}

// TestEntriesOfGoneClientAreHandled: a client that vanishes leaves nothing behind, and what it had
// sent before is done although its stream has ended.
func TestEntriesOfGoneClientAreHandled(t *testing.T) {
	h := setup(t, nil, Config{})
	h.leases.gate = make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := h.client.StreamAccessLogs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	h.send(s, from("a", message(entry(end, "x"))))
	h.eventually("it has arrived", func() bool { return h.counts.get(leases.EntryReleases) == 1 })
	cancel()
	h.leases.gate <- struct{}{}
	h.eventually("the stream is closed", func() bool { return h.counts.get(leases.StreamClosed) == 1 })
	h.wantCalls("end x")
	if strings.Contains(h.log.String(), "broken") {
		t.Errorf("log: %s", &h.log)
	}
}

// TestStreamEndsAfterWhatHasArrived: a stream ends when an interceptor ends its context, after
// what has arrived is done.
func TestStreamEndsAfterWhatHasArrived(t *testing.T) {
	drain, endAll := context.WithCancel(context.Background())
	defer endAll()
	var receives atomic.Int64
	h := setup(t, nil, Config{}, grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo,
		handler grpc.StreamHandler) error {
		return handler(srv, drained{s, drain, &receives})
	}))
	h.leases.gate = make(chan struct{})
	s := h.open()
	h.send(s, from("a", message(entry(end, "x"))), message(entry(end, "y")), message(entry(end, "z")))
	h.eventually("all are received", func() bool { return receives.Load() == 4 })
	endAll()
	close(h.leases.gate)
	if err := s.RecvMsg(new(als.StreamAccessLogsResponse)); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	if got := strings.Join(h.leases.got(), " "); strings.ReplaceAll(got, "end ", "") != "x y z" {
		t.Errorf("calls: %s", got)
	}
	if h.leases.late > 0 {
		t.Error("a call ended with the stream")
	}
}

// drained is a stream whose context an interceptor ends.
type drained struct {
	grpc.ServerStream
	ctx      context.Context
	receives *atomic.Int64 // how many were begun
}

func (d drained) Context() context.Context { return d.ctx }

func (d drained) RecvMsg(m any) error {
	d.receives.Add(1)
	return d.ServerStream.RecvMsg(m)
}

// TestTooLargeMessagesAreLogged: an operator hears of messages that the server does not take.
func TestTooLargeMessagesAreLogged(t *testing.T) {
	h := setup(t, nil, Config{}, grpc.MaxRecvMsgSize(1000))
	s := h.open("x-headgate-owner", "a")
	h.send(s, message(entry(end, strings.Repeat("x", 1000))))
	if err := s.RecvMsg(new(als.StreamAccessLogsResponse)); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	h.eventually("it is logged", func() bool { return strings.Contains(h.log.String(), "stream failed") })
}
