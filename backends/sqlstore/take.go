package sqlstore

import (
	"context"
	"errors"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/limit"
)

// maxKeys bounds the rows of one transaction. A slice whose requests have more ops takes several.
const maxKeys = 1000

// Take implements [backends.Backend].
func (b *Backend) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	s := slice{}
	ops := 0
	for i := range reqs {
		if err := b.caps.CheckRequest(&reqs[i]); err != nil {
			backends.Fail(out[i:i+1], err)
			continue
		}
		if ops += len(reqs[i].Ops); ops > maxKeys {
			b.take(ctx, &s)
			s, ops = slice{}, len(reqs[i].Ops)
		}
		s.reqs, s.out = append(s.reqs, &reqs[i]), append(s.out, &out[i])
	}
	b.take(ctx, &s)
}

// take decides a slice: all of it at once, unless somebody holds rows for long.
func (b *Backend) take(ctx context.Context, s *slice) {
	ctx, cancel := context.WithTimeout(ctx, b.conf.Timeout)
	defer cancel()
	splits := b.conf.dialect.there != nil
	if splits && len(s.reqs) > 0 && b.suspects() {
		b.takeFree(ctx, s)
		return
	}
	e := effort{wait: 1, again: passes}
	if splits {
		e = effort{wait: waitShare, again: func(err error) bool { return passes(err) && sqldb.KindOf(err) != sqldb.Held }}
	}
	switch err := b.decide(ctx, s, e); {
	case err == nil:
	case splits && sqldb.KindOf(err) == sqldb.Held && errors.Is(err, backends.ErrNotApplied):
		b.looks.Store(looksAfter)
		b.takeFree(ctx, s)
	default:
		s.fail(err)
	}
}
