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

// bounds are what clients may make the process keep.
type bounds struct {
	limit memory.Limit
	pool  *memory.Pool // for what is read and not yet decided, of all listeners
}

// newBounds reads how much memory the process may use, holds the collector to it, and says so.
func newBounds(log *slog.Logger, m *serverMetrics) *bounds {
	limit := memory.Read("/")
	b := &bounds{limit: limit, pool: limit.Pool()}
	b.log(log, limit.HoldCollector())
	m.Add(memoryRows(b)...)
	return b
}

func (b *bounds) log(log *slog.Logger, collector int64) {
	if b.limit.Bytes == math.MaxInt64 {
		log.Info("no limit of memory is known", "buffers_mib", b.pool.Limit()>>20)
		return
	}
	log.Info("memory", "limit_mib", b.limit.Bytes>>20, "from", b.limit.From, "collector_mib", collector>>20,
		"buffers_mib", b.pool.Limit()>>20)
	if b.limit.Bytes < memory.Least {
		log.Warn("memory is short: the system may end the process under load; give it more", "limit_mib",
			b.limit.Bytes>>20, "from", b.limit.From, "want_mib", int64(memory.Least>>20))
	}
}
