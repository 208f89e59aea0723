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
		engines := map[string]slots.Engine{"tx": slots.TxEngine(db)}
		if p := db.Procedure(); p != nil {
			engines["procedure"] = slots.ProcedureEngine(p, engines["tx"])
		}
		for name, engine := range engines {
			b.Run(server.name+"/"+name, func(b *testing.B) {
				var n, conflicts atomic.Int64
				b.SetParallelism(4)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						k := n.Add(1)
						s := &slots.Search{
							Series: slots.Series{Scope: name + fmt.Sprint(b.N), SizeMs: 1000}, ConfigID: "c", Max: 100,
							FirstMs: k % 64 * 1000, FromMs: 64_000, EndMs: 1 << 40,
							Asks: []slots.Ask{{EventID: fmt.Sprint(name, b.N, "-", k), SlotID: fmt.Sprint(name, time.Now().UnixNano(), k),
								FirstMax: 1 << 30}},
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
}
