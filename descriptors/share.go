package descriptors

import (
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/limit"
)

// localShare reads local_share of a limit; zero if there is none. It is for
// limits that count units per time: a request in flight cannot be taken ahead.
func (l *loader) localShare(n *yaml.Node, t *twig, of *limit.Limit) int64 {
	if n == nil {
		return 0
	}
	switch of.Algorithm() {
	case limit.FixedWindow, limit.SlidingLog, limit.SlidingWindow, limit.TokenBucket:
	default:
		l.errorf(n, t, "%v has no local_share", of.Algorithm())
		return 0
	}
	share, ok := l.integer(n, t, "local_share", 2, limit.MaxUnits)
	if ok && share > of.Capacity() {
		l.errorf(n, t, "local_share %d is more than the limit ever has room for, %d", share, of.Capacity())
	}
	return share
}

// DescribeShares writes, for each limit with a local_share, how far it can be
// off on account of it.
func (s *Set) DescribeShares(w io.Writer) error {
	for _, r := range s.rules {
		for i := range r.Limits {
			if r.Limits[i].Share == 0 {
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
	n, what := l.Share-1, "limit"
	if l.Name != "" {
		what += " " + l.Name
	}
	held := fmt.Sprintf("%s, local_share %d: up to %d × replicas of %d may be refused too early", what, l.Share, n, l.Limit.Capacity())
	span := formatDuration(l.Limit.Window())
	switch l.Limit.Algorithm() {
	case limit.FixedWindow:
		return fmt.Sprintf("%s in each window of %s; never more than %d pass", held, span, l.Limit.Max())
	case limit.TokenBucket:
		return fmt.Sprintf("%s, and as many may pass beyond rate and burst", held)
	}
	return fmt.Sprintf("%s, and as many may pass beyond the limit in %s", held, span)
}
