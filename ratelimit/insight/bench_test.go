package insight

import (
	"fmt"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

func BenchmarkWatch(b *testing.B) {
	l := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 100, Window: 1e9})
	for _, n := range []int{10, 200_000} {
		list := make([]Seen, n)
		for i := range list {
			v := fmt.Sprint("visitor-", i)
			list[i] = Seen{Domain: "d", Entries: []descriptors.Entry{{Key: "k", Value: v}}, Rule: "d/k", Limit: l,
				Group: "1:d1:k" + v, At: 1}
		}
		b.Run(fmt.Sprint("refused/", n), func(b *testing.B) {
			w := NewWatch()
			for i := 0; b.Loop(); i++ {
				if kept, _ := w.Refuse(list[i%n].Rule, list[i%n].Group, 1); !kept {
					w.AddRefused(&list[i%n])
				}
			}
		})
		b.Run(fmt.Sprint("near/", n), func(b *testing.B) {
			w := NewWatch()
			for i := 0; b.Loop(); i++ {
				if !w.Approach(list[i%n].Rule, list[i%n].Group, 1, l, 10) {
					w.AddNear(&list[i%n], 10)
				}
			}
		})
	}
}
