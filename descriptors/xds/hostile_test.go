package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/headgate-rls/headgate/test/controlplane"
)

// Whatever a control plane does: the rules that were good stay, and when it behaves again
// it is followed.
func TestAControlPlaneThatMisbehavesChangesNothing(t *testing.T) {
	good := func(version, nonce string) *discovery.DiscoveryResponse {
		return &discovery.DiscoveryResponse{VersionInfo: version, Nonce: nonce, TypeUrl: controlplane.TypeURL,
			Resources: []*anypb.Any{controlplane.Pack(limited("a", 1))}}
	}
	send := func(change func(*discovery.DiscoveryResponse)) func(controlplane.Stream) error {
		return func(s controlplane.Stream) error {
			r := good("9", "9")
			change(r)
			if err := s.Send(r); err != nil {
				return err
			}
			<-s.Context().Done()
			return nil
		}
	}
	for name, does := range map[string]func(controlplane.Stream) error{
		"another type": send(func(r *discovery.DiscoveryResponse) {
			r.TypeUrl = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
		}),
		"no type": send(func(r *discovery.DiscoveryResponse) { r.TypeUrl = "" }),
		"a huge message": send(func(r *discovery.DiscoveryResponse) {
			r.Resources = []*anypb.Any{{TypeUrl: controlplane.TypeURL, Value: make([]byte, 5<<20)}}
		}),
		"a long version": send(func(r *discovery.DiscoveryResponse) { r.VersionInfo = strings.Repeat("v", 2000) }),
		"a long nonce":   send(func(r *discovery.DiscoveryResponse) { r.Nonce = strings.Repeat("n", 2000) }),
		"many resources": send(func(r *discovery.DiscoveryResponse) {
			r.Resources = make([]*anypb.Any, maxDomains+1)
			fill(r.Resources)
		}),
		"it ends at once":  func(controlplane.Stream) error { return nil },
		"it fails at once": func(controlplane.Stream) error { return errors.New("no") },
		"it fails late": func(s controlplane.Stream) error {
			_, _ = s.Recv()
			return errors.New("late")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plane := controlplane.Start(t)
			plane.Send(limited("a", 1))
			f := follow(t, plane, func(o *Options) { o.MaxMessage = 4 << 20 })
			f.want("a=1")
			plane.Misbehave(does)
			plane.Stop()
			plane.Misbehave(does)
			plane.Restart()
			before := plane.Streams()
			f.eventually("it is tried again and again", func() string {
				if plane.Streams() > before+2 {
					return "it is tried again and again"
				}
				return fmt.Sprint(plane.Streams())
			})
			if s := f.Status(); !s.Rules || s.Domains != 1 || s.Error == "" || s.Connected {
				t.Errorf("status: %+v", s)
			}
			plane.Misbehave(nil)
			plane.Send(limited("a", 2))
			f.want("a=1 a=2")
		})
	}
}

func fill(list []*anypb.Any) {
	for i := range list {
		list[i] = &anypb.Any{}
	}
}

// Nonces that are used again, or empty, are answered as they come.
func TestNoncesAreAnsweredAsTheyCome(t *testing.T) {
	plane := controlplane.Start(t)
	answers := make(chan string, 100)
	plane.Misbehave(func(s controlplane.Stream) error {
		for i, nonce := range []string{"n", "n", "", "n"} {
			r := &discovery.DiscoveryResponse{VersionInfo: fmt.Sprint(i), Nonce: nonce, TypeUrl: controlplane.TypeURL,
				Resources: []*anypb.Any{controlplane.Pack(limited("a", uint32(i+1)))}}
			if err := s.Send(r); err != nil {
				return err
			}
		}
		for range 5 { // the first request, and the answers
			req, err := s.Recv()
			if err != nil {
				return err
			}
			answers <- req.VersionInfo + "/" + req.ResponseNonce
		}
		<-s.Context().Done()
		return nil
	})
	f := follow(t, plane, nil)
	f.want("a=1 a=2 a=3 a=4")
	for _, want := range []string{"/", "0/n", "1/n", "2/", "3/n"} {
		if got := <-answers; got != want {
			t.Errorf("request %s, want %s", got, want)
		}
	}
}

// A stream of versions without end takes little of a processor, and each version that is
// read counts.
func TestAnEndlessStreamOfVersionsIsSlowedDown(t *testing.T) {
	plane := controlplane.Start(t)
	plane.Misbehave(func(s controlplane.Stream) error {
		for i := 0; ; i++ {
			r := &discovery.DiscoveryResponse{VersionInfo: fmt.Sprint(i), Nonce: fmt.Sprint(i), TypeUrl: controlplane.TypeURL,
				Resources: []*anypb.Any{controlplane.Pack(limited("a", uint32(i+1)))}}
			if err := s.Send(r); err != nil {
				return err
			}
		}
	})
	f := follow(t, plane, nil)
	time.Sleep(2 * time.Second)
	f.mu.Lock()
	n := len(f.sets)
	f.mu.Unlock()
	if most := freeResponses + 2 + int(2*time.Second/leastPause) + 2; n > most || n < freeResponses {
		t.Errorf("%d versions in 2 s, want %d to %d", n, freeResponses, most)
	}
}

// Messages that would take far more memory than their bytes are refused before they are
// decoded.
func TestSmallMessagesThatWouldTakeMuchMemoryAreRefused(t *testing.T) {
	nested := []byte{}
	for range maxDepth + 1 {
		nested = protowire.AppendBytes(protowire.AppendTag(nil, 4, protowire.BytesType), nested)
	}
	domain := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), "a")
	rules := func(one []byte) []byte {
		return append(append([]byte{}, domain...),
			protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), one)...)
	}
	empty := append([]byte{}, domain...)
	for range maxNodes + 1 {
		empty = append(empty, 3<<3|2, 0)
	}
	var replaces []byte
	for range maxNodes + 1 {
		replaces = append(replaces, 5<<3|2, 0)
	}
	long := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), strings.Repeat("k", 1000))
	many := append([]byte{}, long...)
	for range 2000 {
		many = append(many, 4<<3|2, 0)
	}
	for range 100 {
		many = append(append([]byte{}, long...),
			protowire.AppendBytes(protowire.AppendTag(nil, 4, protowire.BytesType), many)...)
	}
	for name, c := range map[string]struct {
		config []byte
		want   string
	}{
		"long paths":        {rules(many), "the paths of rules have more than 64 MiB"},
		"empty descriptors": {empty, "more than 500000 descriptors"},
		"names to replace": {rules(protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), replaces)),
			"more than 500000 descriptors"},
		"nested deeply": {rules(nested), "nested deeper than 256"},
		"metadata": {rules(protowire.AppendBytes(protowire.AppendTag(nil, 8, protowire.BytesType),
			make([]byte, maxMetadata+1))), "more than 64 KiB"},
		"cut": {rules(protowire.AppendBytes(protowire.AppendTag(nil, 4, protowire.BytesType), []byte{0xff})),
			"not valid protobuf"},
		"no domain": {nil, "no domain"},
	} {
		any := append(protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), typeURLOfRules),
			protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), c.config)...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := open(any)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
			t.Errorf("%s: %d bytes were allocated", name, grown)
		}
	}
}

// Domains that are kept because they are not sent count against the bounds, and go first.
func TestWhatIsKeptIsBounded(t *testing.T) {
	s := &state{maxBytes: 400}
	for i := range 100 {
		name := fmt.Sprintf("domain-%03d", i)
		r := controlplane.Pack(limited(name, 1)).Value
		o := s.consider([]resource{{domain: name, raw: r}}, nil, true)
		if o.set == nil || o.domains[name] == nil {
			t.Fatalf("%s: %v", name, o.problems)
		}
		s.take(o)
		total := 0
		for _, v := range s.inForce {
			total += v.bytes
		}
		if total > s.maxBytes {
			t.Fatalf("%d bytes are kept", total)
		}
	}
	o := s.consider(
		[]resource{{domain: "large", raw: controlplane.Pack(limited("large"+strings.Repeat("x", 500), 1)).Value}}, nil, true)
	if o.set != nil || len(o.problems) == 0 || len(s.inForce) == 0 {
		t.Errorf("too much at once: %v", o.problems)
	}
}

// A peer that takes the connection and says nothing, or speaks no HTTP/2, is given up
// and tried again.
func TestAPeerThatSaysNothingIsGivenUp(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for seconds")
	}
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := make(chan net.Conn, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			taken <- c
		}
	}()
	opt := Options{Address: l.Addr().String(), NodeID: "n"}
	opt.fill()
	began := time.Now()
	s, err := opt.dial(context.Background())
	if err == nil {
		s.close()
		t.Fatal("a stream with a peer that says nothing")
	}
	if took := time.Since(began); took > connectWithin+10*time.Second {
		t.Errorf("given up after %v", took)
	}
	c := <-taken
	_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
	_ = c.Close()
}

// A client waits longer with each failure, but never in step with others, and a
// connection that soon fails again is no success.
func TestRetriesSpreadAndGrow(t *testing.T) {
	r := retry{span: backoffRange{time.Second, 8 * time.Second}}
	most := []time.Duration{}
	for range 200 {
		r.times = 0
		for i := range 6 {
			d := r.next(time.Second)
			if len(most) <= i {
				most = append(most, 0)
			}
			most[i] = max(most[i], d)
			if bound := min(8*time.Second, time.Second<<i) + 100*time.Millisecond; d > bound || d < 100*time.Millisecond {
				t.Fatalf("retry %d after %v", i, d)
			}
		}
	}
	for i := 1; i < 4; i++ {
		if most[i] < most[i-1] {
			t.Errorf("longest waits: %v", most)
		}
	}
	for range 1000 {
		r.next(0) // does not overflow
	}
	if r.next(9*time.Second) > 1100*time.Millisecond {
		t.Error("a connection that lived long is followed by a long wait")
	}
}
