package sqlstore

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

// One event after another, by 8 callers, each into a window that has room.
func BenchmarkAssign(b *testing.B) {
	for _, server := range servers() {
		db := migrated(b, server.create(b))
		engine := slots.TxEngine(db)
		b.Run(server.name, func(b *testing.B) {
			var n, conflicts atomic.Int64
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					k := n.Add(1)
					ask := slots.Ask{EventID: fmt.Sprint(b.N, "-", k), SlotID: fmt.Sprint(time.Now().UnixNano(), k)}
					ask.FirstMax = 1 << 30
					s := &slots.Search{
						Series: slots.Series{Scope: fmt.Sprint(b.N), SizeMs: 1000}, ConfigID: "c", Max: 100,
						FirstMs: k % 64 * 1000, FromMs: 64_000, EndMs: 1 << 40, Asks: []slots.Ask{ask},
					}
					found, err := engine.Assign(b.Context(), s)
					if err != nil || found.Answers[0].Status != slots.New {
						conflicts.Add(1)
					}
				}
			})
			b.ReportMetric(float64(conflicts.Load())/float64(b.N), "failed/op")
		})
	}
}
