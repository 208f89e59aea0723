package descriptors

import (
	"fmt"
	"io"

	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
)

// DescribeShares writes, for each limit with a local_share, how far it can be
// off on account of it.
func (s *Set) DescribeShares(w io.Writer) error {
	for _, r := range s.rules {
		for i := range r.Limits {
			if r.Limits[i].Limit.Share() == 0 {
				continue
			}
			if _, err := fmt.Fprintf(w, "%s/%s: %s\n", r.Domain, r.Path, r.Limits[i].describeShare()); err != nil {
				return err
			}
		}
	}
	return nil
}

// describeShare says in words what local_share costs in exactness.
func (l *RuleLimit) describeShare() string {
	share, what := l.Limit.Share(), "limit"
	if l.Name != "" {
		what += " " + l.Name
	}
	held := fmt.Sprintf("%s, local_share %d: up to %d × replicas of %d may be refused too early", what, share, share-1,
		l.Limit.Capacity())
	span := units.Format(l.Limit.Window())
	switch {
	case l.Limit.Is(limit.Isolated):
		return fmt.Sprintf("%s in each window of %s; never more than %d pass", held, span, l.Limit.Max())
	case l.Limit.Is(limit.Refilled):
		return fmt.Sprintf("%s, and as many may pass beyond rate and burst", held)
	}
	return fmt.Sprintf("%s, and as many may pass beyond the limit in %s", held, span)
}
