package grpclimit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate-rls/headgate"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/units"
)

// An Extractor returns a value of a call; method is its full name. ok is false if the call
// has none; then the descriptor that asks for it is left out.
type Extractor func(ctx context.Context, method string) (value string, ok bool)

// An Entry is a key, as rules name it, and where its value comes from.
type Entry struct {
	Key   string
	Value Extractor
}

// A Descriptor describes a call to the rules with these keys, in this order.
type Descriptor []Entry

// Config says how calls are described.
type Config struct {
	// Domain is that of the rules. It is required.
	Domain string
	// Descriptors describe a call, each to other rules. None means two: the key "method"
	// with [Method], and the key "client" with [Peer].
	Descriptors []Descriptor
}

// Method is the call's full name, such as /shop.Orders/Create.
func Method() Extractor {
	return func(_ context.Context, method string) (string, bool) { return method, true }
}

// Peer is the address of who has connected, without its port. IPv6 addresses are those of
// their /64.
func Peer() Extractor {
	return func(ctx context.Context, _ string) (string, bool) {
		p, ok := peer.FromContext(ctx)
		if !ok || p.Addr == nil {
			return "", false
		}
		at, err := netip.ParseAddrPort(p.Addr.String())
		if err != nil {
			return "", false // such as a Unix socket
		}
		addr := at.Addr().WithZone("").Unmap()
		if addr.Is4() {
			return addr.String(), true
		}
		return netip.PrefixFrom(addr, 64).Masked().String(), true
	}
}

// Metadata is the first value of a name in the call's metadata, as the first half of its
// SHA-256 in hex: neither the store nor the metrics nor the logs show it.
func Metadata(name string) Extractor {
	if name = strings.ToLower(name); name == "host" {
		name = ":authority" // which gRPC calls it
	}
	return func(ctx context.Context, _ string) (string, bool) {
		values := metadata.ValueFromIncomingContext(ctx, name)
		if len(values) == 0 || values[0] == "" {
			return "", false
		}
		sum := sha256.Sum256([]byte(values[0]))
		return hex.EncodeToString(sum[:sha256.Size/2]), true
	}
}

// Subject is who has signed in, as name reports it.
func Subject(name func(ctx context.Context) (subject string, ok bool)) Extractor {
	return func(ctx context.Context, _ string) (string, bool) { return name(ctx) }
}

// An interceptor limits calls.
type interceptor struct {
	limiter *headgate.Limiter
	conf    Config
}

// newInterceptor panics if the Config is wrong: a mistake of a program, not of a call.
func newInterceptor(limiter *headgate.Limiter, conf Config) *interceptor {
	if limiter == nil || conf.Domain == "" {
		panic("grpclimit: the limiter is nil, or Config.Domain is empty")
	}
	if len(conf.Descriptors) == 0 {
		conf.Descriptors = []Descriptor{{{Key: "method", Value: Method()}}, {{Key: "client", Value: Peer()}}}
	}
	for i, d := range conf.Descriptors {
		for j, e := range d {
			if e.Key == "" || e.Value == nil {
				panic(fmt.Sprintf("grpclimit: Config.Descriptors[%d][%d] needs a Key and a Value", i, j))
			}
		}
		if len(d) == 0 {
			panic(fmt.Sprintf("grpclimit: Config.Descriptors[%d] has no entries", i))
		}
	}
	return &interceptor{limiter, conf}
}

// Unary limits unary calls. It panics if the Config is wrong.
func Unary(limiter *headgate.Limiter, conf Config) grpc.UnaryServerInterceptor {
	i := newInterceptor(limiter, conf)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		end, err := i.enter(ctx, info.FullMethod, func(md metadata.MD) { _ = grpc.SetHeader(ctx, md) })
		if err != nil {
			return nil, err
		}
		defer end()
		return handler(ctx, req)
	}
}

// Stream limits streams, each as one call. It panics if the Config is wrong.
func Stream(limiter *headgate.Limiter, conf Config) grpc.StreamServerInterceptor {
	i := newInterceptor(limiter, conf)
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		end, err := i.enter(stream.Context(), info.FullMethod, func(md metadata.MD) { _ = stream.SetHeader(md) })
		if err != nil {
			return err
		}
		defer end()
		return handler(srv, stream)
	}
}

// enter asks for a call. It returns what ends the call, or the error to fail it with.
func (i *interceptor) enter(ctx context.Context, method string, setHeader func(metadata.MD)) (end func(), err error) {
	list := i.describe(ctx, method)
	if len(list) == 0 {
		return func() {}, nil
	}
	lease, d, err := i.limiter.Acquire(ctx, i.conf.Domain, list...)
	if err != nil {
		return nil, failure(err)
	}
	if d.Delay > 0 && background.Sleep(ctx, d.Delay) != nil {
		lease.Release()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if d.Rule != "" {
		setHeader(headers(&d))
	}
	if !d.Allowed {
		return nil, refusal(&d)
	}
	return lease.Release, nil
}

func (i *interceptor) describe(ctx context.Context, method string) []headgate.Descriptor {
	var list []headgate.Descriptor
	for _, d := range i.conf.Descriptors {
		entries := make([]headgate.Entry, 0, len(d))
		for _, e := range d {
			value, ok := e.Value(ctx, method)
			if !ok {
				break
			}
			entries = append(entries, headgate.Entry{Key: e.Key, Value: strings.ToValidUTF8(value, "\uFFFD")})
		}
		if len(entries) == len(d) {
			list = append(list, headgate.Descriptor{Entries: entries})
		}
	}
	return list
}

// failure returns the status of a call that cannot be decided.
func failure(err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	case errors.Is(err, headgate.ErrInvalid):
		return status.Error(codes.Internal, "the call cannot be counted against its limits")
	}
	return status.Error(codes.Unavailable, "the call cannot be counted against its limits")
}

func headers(d *headgate.Decision) metadata.MD {
	md := metadata.Pairs("x-ratelimit-limit", strconv.FormatInt(d.Max, 10), "x-ratelimit-remaining",
		strconv.FormatInt(d.Remaining, 10))
	if !d.Allowed && d.RetryAfter > 0 {
		md.Set("retry-after", strconv.FormatInt(max(units.CeilSeconds(d.RetryAfter), 1), 10))
	}
	return md
}

// refusal returns the status of a refused call.
func refusal(d *headgate.Decision) error {
	st := status.New(codes.ResourceExhausted, cmp.Or(d.Body, "rate limit exceeded"))
	if d.RetryAfter > 0 {
		if with, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)}); err == nil {
			st = with
		}
	}
	return st.Err()
}
