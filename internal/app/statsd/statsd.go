package statsd

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// A Config says what is sent, where, and how often.
type Config struct {
	Address  string // host:port; the host is looked up each time
	Protocol string // "udp", "tcp" or Dog
	Interval time.Duration
	Tags     []string // key:value
	Metrics  []Metric
	Log      *slog.Logger
}

// Dog is the protocol of DogStatsD: UDP, with the tags of a metric at the end of its line.
const Dog = "dogstatsd"

// Bounds of what is sent.
const (
	maxPacket  = 1400 // bytes, so that no network cuts packets
	sendWithin = 2 * time.Second
	warnEvery  = time.Minute
)

// A Sender sends metrics. Its memory is that of the series that its rows have.
type Sender struct {
	conf   Config
	tags   string          // behind each name
	end    string          // of each line
	sent   map[key]float64 // what the collector knows of counters
	warned time.Time

	ok, failed metrics.Counter
}

// New returns a sender, which [Sender.Run] starts.
func New(conf Config) *Sender {
	s := &Sender{conf: conf, tags: serialize(conf.Tags), end: "\n"}
	if conf.Protocol == Dog {
		s.conf.Protocol, s.tags = "udp", ""
		if len(conf.Tags) > 0 {
			s.end = "|#" + strings.NewReplacer("|", "_", "\n", "_").Replace(strings.Join(conf.Tags, ",")) + "\n"
		}
	}
	return s
}

// Run sends until ctx ends, and then once more.
func (s *Sender) Run(ctx context.Context) {
	tick := time.NewTicker(s.conf.Interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.send(ctx)
		case <-ctx.Done():
			s.send(context.WithoutCancel(ctx))
			return
		}
	}
}

// send sends all metrics once. A collector that is not there, or does not read, costs nobody else any time: no row's
// lock is held while it is waited for.
func (s *Sender) send(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sendWithin)
	defer cancel()
	samples := collect(s.conf.Metrics)
	conn, err := new(net.Dialer).DialContext(ctx, s.conf.Protocol, s.conf.Address)
	if err != nil {
		s.warn(err, 0)
		return
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline) // if that fails, so do the writes
	p := &packets{conn: conn, known: make(map[key]float64, len(samples)), most: maxPacket, end: s.end}
	for i := range samples {
		sm := &samples[i]
		before := s.sent[sm.key]
		p.known[sm.key] = before // until it is sent
		p.put(sm, before, s.conf.Metrics[sm.metric].Name, s.tags)
	}
	p.write()
	s.sent = p.known
	s.warn(p.err, p.long)
}

// warn counts what came of sending, and logs what went wrong once a minute at most.
func (s *Sender) warn(err error, long int) {
	if err == nil {
		s.ok.Inc()
	} else {
		s.failed.Inc()
	}
	if now := time.Now(); (err != nil || long > 0) && now.Sub(s.warned) >= warnEvery {
		s.warned = now
		s.conf.Log.Warn("metrics do not reach the StatsD collector; what was counted is sent when it answers", "address",
			s.conf.Address, "protocol", s.conf.Protocol, "error", err, "names_longer_than_a_packet", long)
	}
}

// serialize writes tags as the reference does: in the order of their keys, without what would end a name.
func serialize(tags []string) string {
	values := map[string]string{}
	for _, t := range tags {
		if k, v, _ := strings.Cut(t, ":"); k != "" && v != "" {
			values[k] = strings.NewReplacer(".", "_", ":", "_", "|", "_").Replace(v)
		}
	}
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(values)) {
		b.WriteString(".__" + k + "=" + values[k])
	}
	return b.String()
}
