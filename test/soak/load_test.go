//go:build soak

package soak

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	replicas = 3
	// idle is the client of the server that does nothing. It runs along, so
	// that it sees the noise that the others see.
	idle = replicas

	callDeadline = 100 * time.Millisecond
	// headgate keeps a tenth of the deadline for itself. When this machine takes
	// longer to run a process that is ready to, a call may end at its deadline
	// whatever headgate does.
	margin = callDeadline / 10
	// extra is added to what a server that does nothing takes: that is looked at
	// once in a pause, so what it sees of a standstill is shorter by up to that.
	extra = pause + 5*time.Millisecond

	// A client makes burst calls each pause, and has at most inFlight of them
	// under way.
	pause    = 10 * time.Millisecond
	burst    = 3
	inFlight = 128

	// maxSuspects is how many calls wait to be judged at most.
	maxSuspects = 100_000
)

// A client counts what became of the calls to one server.
type client struct {
	calls, refused, degraded int
	late, failed, excused    int
	times                    histogram
}

// A suspect is a call that was late or failed. Whether that is headgate's doing
// shows only when the noise around it is known.
type suspect struct {
	client int
	key    string
	began  time.Time
	took   time.Duration
	err    error
	noise  time.Duration // around it; filled in by judge
}

// A load calls all replicas and the server that does nothing until its context
// ends.
type load struct {
	wait sync.WaitGroup

	mu       sync.Mutex
	clients  [replicas + 1]client
	suspects []suspect
	lost     int                     // suspects there was no room for
	noise    map[int64]time.Duration // worst of the idle server by the second
	byCount  [replicas]time.Time     // when a call of key free was last decided by the backend
}

// startLoad makes the connections, which are no part of a call, and starts.
func startLoad(t *testing.T, ctx context.Context, seed uint64, addrs []string) *load {
	t.Helper()
	l := &load{noise: map[int64]time.Duration{}}
	for i, addr := range addrs {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		stub := rls.NewRateLimitServiceClient(conn)
		first, cancel := context.WithTimeout(ctx, 10*time.Second)
		_, err = stub.ShouldRateLimit(first, newRequest(1, "unruled", "x"), grpc.WaitForReady(true))
		cancel()
		if err != nil {
			t.Fatalf("first call to %s: %v", addr, err)
		}
		l.wait.Go(func() { l.drive(ctx, i, newTraffic(seed, uint64(i)), stub) })
	}
	return l
}

// drive makes calls at an even pace, whether or not earlier ones have ended.
func (l *load) drive(ctx context.Context, number int, traffic *traffic, stub rls.RateLimitServiceClient) {
	slots := make(chan struct{}, inFlight)
	due := time.Now()
	for {
		due = due.Add(pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(due)):
		}
		at := due
		for range burst {
			key, request := traffic.next()
			slots <- struct{}{} // calls have deadlines, so there will be room
			l.wait.Go(func() {
				l.one(number, key, at, stub, request)
				<-slots
			})
		}
		if now := time.Now(); now.Sub(due) > pause {
			due = now // what was missed is not made up for
		}
	}
}

// one makes a call. Those to the server that does nothing begin when they were
// due: when this process does not get to run, it is there that it shows.
func (l *load) one(number int, key string, due time.Time, stub rls.RateLimitServiceClient,
	request *rls.RateLimitRequest) {
	s := suspect{client: number, key: key, began: time.Now()}
	ctx, cancel := context.WithTimeout(context.Background(), callDeadline)
	defer cancel()
	answer, err := stub.ShouldRateLimit(ctx, request)
	if number == idle {
		s.began = due
	}
	s.took, s.err = time.Since(s.began), err

	l.mu.Lock()
	defer l.mu.Unlock()
	c := &l.clients[number]
	c.calls++
	c.times.add(s.took)
	if number == idle {
		for at := s.began.Unix(); at <= s.began.Add(s.took).Unix(); at++ {
			l.noise[at] = max(l.noise[at], s.took)
		}
		return
	}
	if err != nil || s.took > callDeadline+extra {
		if len(l.suspects) < maxSuspects {
			l.suspects = append(l.suspects, s)
		} else {
			l.lost++
		}
	}
	if err != nil {
		return
	}
	if answer.OverallCode == rls.RateLimitResponse_OVER_LIMIT {
		c.refused++
	}
	if answer.DynamicMetadata.GetFields()["degraded"].GetStringValue() != "" {
		c.degraded++
	} else if key == free {
		l.byCount[number] = time.Now()
	}
}

// judge decides about the suspects that began before an instant around which
// the noise is known, and returns those that have no excuse.
func (l *load) judge(before time.Time) (guilty []suspect) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var rest []suspect
	for _, s := range l.suspects {
		if !s.began.Before(before) {
			rest = append(rest, s)
			continue
		}
		s.noise = l.noiseAround(s.began, s.began.Add(s.took))
		c := &l.clients[s.client]
		switch {
		// It can be this process that stands still twice in a call.
		case s.took > callDeadline+2*s.noise+extra:
			c.late++
			guilty = append(guilty, s)
		case s.err == nil:
		case timedOut(s.err) && s.noise > margin/2: // half of the margin is the client's
			c.excused++
		default:
			c.failed++
			guilty = append(guilty, s)
		}
	}
	l.suspects = rest
	for at := range l.noise {
		if at < before.Unix()-2 {
			delete(l.noise, at)
		}
	}
	return guilty
}

// noiseAround is the noise in the seconds of a call and in their neighbours.
func (l *load) noiseAround(began, ended time.Time) (noise time.Duration) {
	for at := began.Unix() - 1; at <= ended.Unix()+1; at++ {
		noise = max(noise, l.noise[at])
	}
	return noise
}

func timedOut(err error) bool {
	return status.Code(err) == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded)
}

// counts returns a copy of what was counted.
func (l *load) counts() [replicas + 1]client {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clients
}

// undecided names the replicas that the backend has not decided for since.
func (l *load) undecided(since time.Time) (list []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, at := range l.byCount {
		if at.Before(since) {
			list = append(list, i)
		}
	}
	return list
}

// traffic makes requests whose values are few that are many and many that are
// few, as those of clients of a site are.
type traffic struct {
	random *rand.Rand
	values *rand.Zipf
}

func newTraffic(seed, number uint64) *traffic {
	random := rand.New(rand.NewPCG(seed, number))
	return &traffic{random: random, values: rand.NewZipf(random, 1.1, 8, values-1)}
}

func (tr *traffic) next() (key string, request *rls.RateLimitRequest) {
	key = keys[tr.random.IntN(len(keys))]
	value := strconv.FormatUint(tr.values.Uint64(), 10)
	switch key {
	case free:
		value = strconv.Itoa(tr.random.IntN(freeValues))
	case "several":
		request = newRequest(1, "log", value, "bucket", value, "window", value)
		return key, request
	}
	return key, newRequest(1+uint32(tr.random.IntN(2)), key, value)
}

// newRequest has one descriptor of one entry for each pair of key and value.
func newRequest(hits uint32, pairs ...string) *rls.RateLimitRequest {
	request := &rls.RateLimitRequest{Domain: domain}
	for i := 0; i < len(pairs); i += 2 {
		entry := &common.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]}
		request.Descriptors = append(request.Descriptors, &common.RateLimitDescriptor{
			Entries: []*common.RateLimitDescriptor_Entry{entry}, HitsAddend: wrapperspb.UInt64(uint64(hits)),
		})
	}
	return request
}

// A histogram counts times by tenths of a millisecond; what is longer than it
// reaches is in its last place.
type histogram struct {
	counts [2500]int
	worst  time.Duration
}

const histogramStep = 100 * time.Microsecond

func (h *histogram) add(d time.Duration) {
	h.counts[min(int(d/histogramStep), len(h.counts)-1)]++
	h.worst = max(h.worst, d)
}

// at returns a quantile, rounded up to the histogram's step.
func (h *histogram) at(q float64) time.Duration {
	total := 0
	for _, n := range h.counts {
		total += n
	}
	rank := int(q * float64(total))
	for i, n := range h.counts {
		if rank -= n; rank < 0 {
			return time.Duration(i+1) * histogramStep
		}
	}
	return h.worst
}
