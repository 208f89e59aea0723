package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/test/controlplane"
)

const hour = rlsconf.RateLimitUnit_HOUR

// A followed is a client that runs, and what it has put in force.
type followed struct {
	*Client
	t   *testing.T
	log *strings.Builder

	mu   sync.Mutex
	sets []string // what each set has
	fail error    // of Install
}

func (f *followed) install(set *descriptors.Set) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return f.fail
	}
	f.sets = append(f.sets, describe(set))
	return nil
}

// describe lists domains with the figures of their limits.
func describe(set *descriptors.Set) string {
	var list []string
	for _, r := range set.Rules() {
		for _, l := range r.Limits {
			list = append(list, fmt.Sprintf("%s=%d", r.Domain, l.Limit.Max()))
		}
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

func (f *followed) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log.Write(b)
}

// follow runs a client of the control plane.
func follow(t *testing.T, plane *controlplane.Plane, change func(*Options)) *followed {
	t.Helper()
	f := &followed{t: t, log: new(strings.Builder)}
	opt := Options{
		Address: plane.Addr, NodeID: "envoy-ratelimit",
		Install: f.install, Log: slog.New(slog.NewTextHandler(f, nil)),
		backoff: backoffRange{10 * time.Millisecond, 50 * time.Millisecond},
	}
	if change != nil {
		change(&opt)
	}
	var err error
	if f.Client, err = New(opt); err != nil {
		t.Fatal(err)
	}
	f.Restore()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return f
}

// want waits until the sets that were put in force are those, separated by spaces.
func (f *followed) want(sets string) {
	f.t.Helper()
	f.eventually(sets, func() string {
		f.mu.Lock()
		defer f.mu.Unlock()
		return strings.Join(f.sets, " ")
	})
}

func (f *followed) eventually(want string, get func() string) {
	f.t.Helper()
	got := ""
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if got = get(); got == want {
			return
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.t.Fatalf("have %q, want %q; log:\n%s", got, want, f.log)
}

func limited(domain string, most uint32) *rlsconf.RateLimitConfig {
	return controlplane.Config(domain, controlplane.Rule("k", "", most, hour))
}

// broken cannot be used: its limit has a unit of which this version knows nothing.
func broken(domain string) *rlsconf.RateLimitConfig {
	return controlplane.Config(domain, controlplane.Rule("k", "", 1, 99))
}

// The first request names the node and asks for everything; an answer is acknowledged by
// its version and nonce, when it is in force.
func TestClientAsksAndAcknowledges(t *testing.T) {
	plane := controlplane.Start(t)
	inForce := make(chan struct{})
	f := follow(t, plane, func(o *Options) {
		o.Metadata, o.Headers = map[string]string{"zone": "a"}, map[string]string{"authorization": "Bearer sesame"}
		install := o.Install
		o.Install = func(s *descriptors.Set) error {
			for _, r := range plane.Requests() {
				if r.VersionInfo != "" {
					t.Error("it is acknowledged before it is in force")
				}
			}
			defer close(inForce)
			return install(s)
		}
	})
	plane.Send(limited("a", 1))
	<-inForce
	f.want("a=1")
	ack := plane.Answer(0)
	first := plane.Requests()[0]
	if first.Node.Id != "envoy-ratelimit" || first.Node.Metadata.Fields["zone"].GetStringValue() != "a" ||
		first.TypeUrl != controlplane.TypeURL ||
		len(first.ResourceNames) != 0 || first.VersionInfo != "" || first.ResponseNonce != "" {
		t.Errorf("first request: %v", first)
	}
	if ack.VersionInfo != "1" || ack.ResponseNonce != "1" || ack.ErrorDetail != nil || ack.Node.GetId() == "" ||
		ack.TypeUrl != controlplane.TypeURL {
		t.Errorf("acknowledgment: %v", ack)
	}
	<-f.First()
	s := f.Status()
	if !s.Connected || !s.Rules || s.Version != "1" || s.Domains != 1 || s.Accepted != 1 || s.Refused != 0 || s.Cached {
		t.Errorf("status: %+v", s)
	}
	if strings.Contains(f.log.String(), "sesame") {
		t.Error("the log shows a header's value")
	}
}

// No rules at all is an answer: the last policy was deleted.
func TestNoRulesAreRules(t *testing.T) {
	plane := controlplane.Start(t)
	f := follow(t, plane, nil)
	plane.Send()
	f.want("")
	<-f.First()
	plane.Send(limited("a", 1))
	f.want(" a=1")
	plane.Send()
	f.want(" a=1 ")
}

// Before the first answer there are no rules, however long it takes.
func TestWithoutAnAnswerThereAreNoRules(t *testing.T) {
	plane := controlplane.Start(t)
	plane.Node = "another"
	plane.Send(limited("a", 1))
	f := follow(t, plane, nil)
	select {
	case <-f.First():
		t.Error("rules came for another node")
	case <-time.After(200 * time.Millisecond):
	}
	if s := f.Status(); s.Rules || s.Connected {
		t.Errorf("status: %+v", s)
	}
}

// A domain that cannot be used stays as it was, and keeps no other from changing; the
// control plane learns of all problems in one message.
func TestABadDomainStopsItselfOnly(t *testing.T) {
	plane := controlplane.Start(t)
	f := follow(t, plane, nil)
	plane.Send(limited("a", 1), limited("b", 1), limited("c", 1))
	f.want("a=1,b=1,c=1")
	plane.Answer(0)
	n := len(plane.Requests())
	plane.Send(broken("a"), limited("b", 2), broken("d"))
	f.want("a=1,b=1,c=1 a=1,b=2")
	nack := plane.Answer(n)
	if nack.VersionInfo != "1" || nack.ResponseNonce != "2" || nack.ErrorDetail.GetCode() != 3 {
		t.Errorf("not acknowledged by %v", nack)
	}
	for _, want := range []string{"a/k", "d/k", "unit number 99"} {
		if !strings.Contains(nack.ErrorDetail.GetMessage(), want) {
			t.Errorf("the message does not say %q: %s", want, nack.ErrorDetail.GetMessage())
		}
	}
	s := f.Status()
	if !s.Rejected["a"] || s.Rejected["d"] || len(s.Rejected) != 2 || s.Version != "1" || s.Wrong != 2 || s.Refused != 1 {
		t.Errorf("status: %+v", s)
	}
	n = len(plane.Requests())
	plane.Send(limited("a", 3), limited("b", 2))
	f.want("a=1,b=1,c=1 a=1,b=2 a=3,b=2")
	if ack := plane.Answer(n); ack.VersionInfo != "3" || ack.ErrorDetail != nil {
		t.Errorf("the mended rules: %v", ack)
	}
	if s := f.Status(); len(s.Rejected) != 0 || s.Wrong != 0 {
		t.Errorf("status: %+v", s)
	}
}

// A resource that cannot be read may be any domain's: none is removed meanwhile.
func TestAnUnreadableResourceRemovesNothing(t *testing.T) {
	plane := controlplane.Start(t)
	f := follow(t, plane, nil)
	plane.Send(limited("a", 1), limited("b", 1))
	f.want("a=1,b=1")
	plane.SendAny(controlplane.Pack(limited("b", 2)), &anypb.Any{TypeUrl: controlplane.TypeURL, Value: []byte{0xff}})
	f.want("a=1,b=1 a=1,b=2")
	plane.Send(limited("b", 3))
	f.want("a=1,b=1 a=1,b=2 b=3")
}

// A control plane that has started again sends its domains part by part, and counts
// versions from 1: what it has not sent yet stays, until the grace is over.
func TestARestartOpensNoGates(t *testing.T) {
	plane := controlplane.Start(t)
	f := follow(t, plane, func(o *Options) { o.RemovalGrace = 700 * time.Millisecond })
	plane.Send(limited("a", 1), limited("b", 1), limited("c", 1))
	f.want("a=1,b=1,c=1")
	plane.Restart()
	plane.Send(limited("a", 2))
	f.want("a=1,b=1,c=1 a=2,b=1,c=1")
	f.eventually("[b c] of 1", func() string { s := f.Status(); return fmt.Sprint(s.Kept, " of ", s.Version) })
	plane.Send(limited("a", 2), limited("b", 1))
	f.want("a=1,b=1,c=1 a=2,b=1,c=1 a=2,b=1") // c at the end of the grace, and not before
	f.eventually("0 kept of 2", func() string { s := f.Status(); return fmt.Sprint(len(s.Kept), " kept of ", s.Domains) })
	f.mu.Lock()
	defer f.mu.Unlock()
	if !strings.Contains(f.log.String(), "removed=[c]") {
		t.Errorf("log:\n%s", f.log)
	}
}

// While the control plane is away nothing is removed and nothing changes.
func TestRulesOutliveTheControlPlane(t *testing.T) {
	plane := controlplane.Start(t)
	f := follow(t, plane, nil)
	plane.Send(limited("a", 1))
	f.want("a=1")
	plane.Stop()
	f.eventually("gone", func() string {
		if s := f.Status(); !s.Connected && s.Rules && s.Error != "" && s.Failures > 2 && s.Domains == 1 {
			return "gone"
		}
		return ""
	})
	plane.Restart()
	plane.Send(limited("a", 1))
	f.eventually("back", func() string {
		if s := f.Status(); s.Connected && s.Error == "" {
			return "back"
		}
		return ""
	})
	f.want("a=1") // the same rules are not put in force again
}

// What the backend cannot keep, and what cannot be put in force, is not acknowledged.
func TestWhatCannotBeKeptIsRejected(t *testing.T) {
	plane := controlplane.Start(t)
	f := follow(t, plane, func(o *Options) {
		o.Check = func(set *descriptors.Set) (list []descriptors.Problem) {
			for _, r := range set.Rules() {
				if r.Limits[0].Limit.Max() == 13 {
					list = append(list, descriptors.Problem{File: source, Path: r.Domain, Message: "unlucky"})
				}
			}
			return list
		}
	})
	plane.Send(limited("a", 13), limited("b", 1))
	f.want("b=1")
	if nack := plane.Answer(0); !strings.Contains(nack.ErrorDetail.GetMessage(), "unlucky") ||
		strings.Contains(nack.ErrorDetail.GetMessage(), "all rules") {
		t.Errorf("answer: %v", nack)
	}
	f.mu.Lock()
	f.fail = errors.New("no room")
	f.mu.Unlock()
	n := len(plane.Requests())
	plane.Send(limited("a", 2))
	if nack := plane.Answer(n); !strings.Contains(nack.ErrorDetail.GetMessage(), "no room") {
		t.Errorf("answer: %v", nack)
	}
	if s := f.Status(); s.Domains != 1 {
		t.Errorf("status: %+v", s)
	}
}

// The last good rules come back from the file, and then go the way of all rules.
func TestCacheRestoresTheLastRules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.cache")
	keep := func(o *Options) { o.Cache = file; o.RemovalGrace = 300 * time.Millisecond }
	plane := controlplane.Start(t)
	f := follow(t, plane, keep)
	plane.Send(limited("a", 1), limited("b", 1))
	f.want("a=1,b=1")
	f.eventually("written", func() string {
		if _, err := os.Stat(file); err == nil {
			return "written"
		}
		return ""
	})
	if info, _ := os.Stat(file); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	away := controlplane.Start(t) // it says nothing for now
	g := follow(t, away, keep)
	g.want("a=1,b=1")
	if s := g.Status(); !s.Cached || !s.Rules || s.Connected {
		t.Errorf("status: %+v", s)
	}
	away.Send(limited("a", 2))
	g.want("a=1,b=1 a=2,b=1 a=2")
	if s := g.Status(); s.Cached {
		t.Errorf("status: %+v", s)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := slices.Clone(content)
	changed[len(cacheHead)+2*32+10] ^= 1 // in the rules
	for _, c := range []struct {
		content []byte
		want    string
	}{
		{content[:len(content)-1], "checksum"},
		{changed, "checksum"},
		{[]byte("domain: a\n"), "not a file of headgate's"},
		{nil, "not a file of headgate's"},
		{[]byte("headgate xds cache 2\nwhatever"), "a later version of headgate"},
		{[]byte("headgate xds cache 10\n"), "a later version of headgate"},
		{[]byte("headgate xds cache 0\n"), "not a file of headgate's"},
	} {
		other := filepath.Join(t.TempDir(), "rules.cache")
		if err := os.WriteFile(other, c.content, 0o600); err != nil {
			t.Fatal(err)
		}
		if resp, err := readCache(other, "envoy-ratelimit", DefaultMaxMessage); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("read as %v, %v, want %q", resp, err, c.want)
		}
	}
	if _, err := readCache(file, "another", DefaultMaxMessage); err == nil {
		t.Error("the file of another node is read")
	}
	if _, err := readCache(file, "envoy-ratelimit", 10); err == nil {
		t.Error("a file beyond the bound is read")
	}
	if err := writeCache(filepath.Join(t.TempDir(), "none", "x"), content); err == nil {
		t.Error("a file in no directory is written")
	}
}

func TestClientLeavesNothingBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	plane := controlplane.Start(t)
	plane.Send(limited("a", 1))
	for range 5 {
		f := &followed{t: t, log: new(strings.Builder)}
		c, err := New(Options{Address: plane.Addr, NodeID: "envoy-ratelimit", Install: f.install,
			Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); c.Run(ctx) }()
		<-c.First()
		cancel()
		<-done
	}
	plane.Stop()
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before {
		buf := make([]byte, 1<<16)
		t.Errorf("%d goroutines, %d before:\n%s", n, before, buf[:runtime.Stack(buf, true)])
	}
}
