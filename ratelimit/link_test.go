package ratelimit_test

import (
	"github.com/headgate-rls/headgate/internal/wire/messages"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/insight"
)

func init() {
	w := &ratelimit.Wire
	ratelimit.NewInsight = func() ratelimit.Sink { return insight.NewWatch() }
	w.Encoder, w.Decode, w.Append = messages.Encoder{}, messages.Decode, messages.Append
}
