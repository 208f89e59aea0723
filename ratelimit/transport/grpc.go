package transport

import (
	"context"
	"fmt"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headgate-rls/headgate/ratelimit"
)

// Register makes s answer ShouldRateLimit on srv, which must have been made
// with [ServerCodec]. observe is called with each call's duration and its
// result.
func Register(srv grpc.ServiceRegistrar, s *ratelimit.Service, observe ratelimit.Observe) {
	h := &grpcHandler{service: s, observe: observe}
	srv.RegisterService(&serviceDesc, h)
}

var serviceDesc = grpc.ServiceDesc{
	ServiceName: rls.RateLimitService_ServiceDesc.ServiceName,
	HandlerType: (*grpcServer)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: shouldRateLimit}},
	Metadata:    rls.RateLimitService_ServiceDesc.Metadata,
}

type grpcServer interface {
	shouldRateLimit(ctx context.Context, ex *exchange) error
}

type grpcHandler struct {
	service *ratelimit.Service
	observe ratelimit.Observe
}

func shouldRateLimit(h any, ctx context.Context, dec func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
	ex := exchanges.Get().(*exchange)
	err := dec(ex)
	countMessageRead(ctx)
	if err != nil {
		exchanges.Put(ex)
		return nil, err
	}
	call := func(ctx context.Context, _ any) (any, error) {
		if err := h.(grpcServer).shouldRateLimit(ctx, ex); err != nil {
			exchanges.Put(ex)
			return nil, err
		}
		return ex, nil
	}
	if intercept == nil {
		return call(ctx, ex)
	}
	info := &grpc.UnaryServerInfo{Server: h, FullMethod: rls.RateLimitService_ShouldRateLimit_FullMethodName}
	return intercept(ctx, ex, info, call)
}

func (h *grpcHandler) shouldRateLimit(ctx context.Context, ex *exchange) (err error) {
	start := time.Now()
	defer func() {
		if p := recover(); p != nil {
			_ = h.service.Panics().Report("grpc", p) // its text is not the caller's business
			err = status.Error(codes.Internal, "the handler failed")
		}
	}()
	if ex.malformed != nil {
		h.observe(time.Since(start), ratelimit.CallInvalid, 1)
		return status.Error(codes.InvalidArgument, ex.malformed.Error())
	}
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		readMetadata(h.service, &ex.req, func(name string) []string { return md[name] })
	}
	ex.req.Peer = identityOf(ctx)
	if ctx.Err() != nil {
		h.service.QueueReturns(&ex.req)
		return status.FromContextError(ctx.Err()).Err()
	}
	h.service.Decide(ctx, ex.reqs[:], ex.resps[:])
	if ctx.Err() != nil {
		h.service.Abandon(&ex.resp)
	}
	h.observe(time.Since(start), ex.resp.Result(), 1)
	if err := ex.resp.Err; err != nil {
		return status.Error(codes.Code(err.Code), err.Message)
	}
	return nil
}

// ServerCodec makes a grpc-go server encode this package's own messages by
// hand and all others as protobuf. See wire.go for why.
func ServerCodec() grpc.ServerOption { return grpc.ForceServerCodecV2(codec{}) }

type codec struct{}

func (codec) Name() string { return protocodec.Name }

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	ex, ok := v.(*exchange)
	if !ok {
		return protobuf().Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	// The handler reports it: an error here would become INTERNAL.
	ex.malformed = ex.req.Decode(buf.ReadOnlyData())
	return nil
}

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	ex, ok := v.(*exchange)
	if !ok {
		return protobuf().Marshal(v)
	}
	b := ex.resp.AppendTo(make([]byte, 0, 128))
	exchanges.Put(ex)
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func protobuf() encoding.CodecV2 { return encoding.GetCodecV2(protocodec.Name) }

// Answer answers a protobuf request, for callers that hold one.
func Answer(ctx context.Context, s *ratelimit.Service, message *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	encoded, err := proto.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	var req ratelimit.Request
	var resp ratelimit.Response
	if err := req.Decode(encoded); err != nil {
		return nil, &ratelimit.Error{Code: uint32(codes.InvalidArgument), Message: err.Error()}
	}
	s.Decide(ctx, []*ratelimit.Request{&req}, []*ratelimit.Response{&resp})
	if resp.Err != nil {
		return nil, resp.Err
	}
	answer := new(rls.RateLimitResponse)
	if err := proto.Unmarshal(resp.AppendTo(nil), answer); err != nil {
		return nil, fmt.Errorf("decode response: %w", err)
	}
	return answer, nil
}
