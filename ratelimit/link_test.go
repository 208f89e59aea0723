package ratelimit_test

import (
	"github.com/headgate-rls/headgate/internal/wire/messages"
	"github.com/headgate-rls/headgate/ratelimit"
)

func init() {
	w := &ratelimit.Wire
	w.Encoder, w.Decode, w.Append = messages.Encoder{}, messages.Decode, messages.Append
}
