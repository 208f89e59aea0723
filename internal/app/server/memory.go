package server

import (
	"log/slog"
	"math"

	"github.com/headgate-rls/headgate/internal/kit/memory"
)

// What a connection may cost beside what the pool counts, in bytes: goroutines, buffers and the tables of HPACK.
const (
	unaryConnection = 16 << 10
	otherConnection = 64 << 10 // of net/http, with the longest headers, and of grpc-go
)

// How many sixteenths of the limit of open files the connections of a listener may use. There are up to four listeners
// of HTTP. Two sixteenths are left for stores and rules.
const (
	mainFiles     = 7 // of the listener that answers Envoy
	servicesFiles = 1
	logFiles      = 2 // access logs, beside the others on their listener
	httpFiles     = 1
)

// bounds are what clients may make the process keep.
type bounds struct {
	limit     memory.Limit
	collector int64        // what the collector is held to, in bytes
	pool      *memory.Pool // for what is read and not yet decided, of all listeners
}

// newBounds reads how much memory the process may use, and holds the collector to it.
func newBounds(m *serverMetrics) *bounds {
	limit := memory.Read("/")
	b := &bounds{limit: limit, collector: limit.HoldCollector(), pool: limit.Pool()}
	m.Add(memoryRows(b)...)
	return b
}

// log says how much memory there is, and warns if it is little, or if few files can be open.
func (b *bounds) log(log *slog.Logger) {
	if b.limit.Files < memory.LeastFiles {
		log.Warn("few files can be open, so few clients can connect; raise the limit (ulimit -n, LimitNOFILE)",
			"limit", b.limit.Files, "clients", b.limit.Connections(maxUnaryConnections, unaryConnection, mainFiles),
			"want", memory.LeastFiles)
	}
	if b.limit.Bytes == math.MaxInt64 {
		log.Info("no limit of memory is known", "buffers_mib", b.pool.Limit()>>20)
		return
	}
	log.Info("memory", "limit_mib", b.limit.Bytes>>20, "from", b.limit.From, "collector_mib", b.collector>>20,
		"buffers_mib", b.pool.Limit()>>20)
	if b.limit.Bytes < memory.Least {
		log.Warn("memory is short: the system may end the process under load; give it more", "limit_mib",
			b.limit.Bytes>>20, "from", b.limit.From, "want_mib", int64(memory.Least>>20))
	}
}
