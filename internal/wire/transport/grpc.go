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

	"github.com/headgate-rls/headgate/internal/wire/messages"
	"github.com/headgate-rls/headgate/ratelimit"
)

// Register makes s answer all methods on srv, which must have been made with [ServerCodec]. observe is called with
// each call's duration and its result.
func Register(srv grpc.ServiceRegistrar, s *ratelimit.Service, observe ratelimit.Observe) {
	demandEncoder(s)
	h := &grpcHandler{service: s, observe: observe}
	services := map[string]*grpc.ServiceDesc{}
	for _, m := range Methods {
		desc := services[m.Service]
		if desc == nil {
			desc = &grpc.ServiceDesc{ServiceName: m.Service, HandlerType: (*any)(nil)}
			services[m.Service] = desc
		}
		desc.Methods = append(desc.Methods, grpc.MethodDesc{MethodName: m.Name, Handler: m.handle})
	}
	for _, desc := range services {
		srv.RegisterService(desc, h)
	}
}

type grpcHandler struct {
	service *ratelimit.Service
	observe ratelimit.Observe
}

// handle is a grpc.MethodHandler.
func (m *Method) handle(
	h any, ctx context.Context, dec func(any) error, intercept grpc.UnaryServerInterceptor,
) (any, error) {
	ex := exchanges.Get().(*exchange)
	ex.method = m
	err := dec(ex)
	countMessageRead(ctx)
	if err != nil {
		exchanges.Put(ex)
		return nil, err
	}
	call := func(ctx context.Context, _ any) (any, error) {
		if err := h.(*grpcHandler).answer(ctx, ex); err != nil {
			exchanges.Put(ex)
			return nil, err
		}
		return ex, nil
	}
	if intercept == nil {
		return call(ctx, ex)
	}
	return intercept(ctx, ex, &grpc.UnaryServerInfo{Server: h, FullMethod: m.Path()}, call)
}

func (h *grpcHandler) answer(ctx context.Context, ex *exchange) (err error) {
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
		readHeaders(h.service, &ex.req, func(name string) []string { return md[name] })
	}
	ex.req.Peer = identityOf(ctx)
	if ctx.Err() != nil {
		h.service.QueueReturns(&ex.req)
		return status.FromContextError(ctx.Err()).Err()
	}
	ex.method.Do(h.service, ctx, ex.reqs[:], ex.resps[:])
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
// hand and all others as protobuf. See package messages for why.
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
	ex.malformed = ex.method.Read(&ex.req, buf.ReadOnlyData())
	return nil
}

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	ex, ok := v.(*exchange)
	if !ok {
		return protobuf().Marshal(v)
	}
	b := ex.method.Write(&ex.resp, make([]byte, 0, 128))
	exchanges.Put(ex)
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func protobuf() encoding.CodecV2 { return encoding.GetCodecV2(protocodec.Name) }

// Answer answers a protobuf request, for callers that hold one.
func Answer(ctx context.Context, s *ratelimit.Service, message *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	demandEncoder(s)
	encoded, err := proto.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	var req ratelimit.Request
	var resp ratelimit.Response
	if err := messages.Decode(&req, encoded); err != nil {
		return nil, &ratelimit.Error{Code: uint32(codes.InvalidArgument), Message: err.Error()}
	}
	s.Decide(ctx, []*ratelimit.Request{&req}, []*ratelimit.Response{&resp})
	if resp.Err != nil {
		return nil, resp.Err
	}
	answer := new(rls.RateLimitResponse)
	if err := proto.Unmarshal(messages.Append(&resp, nil), answer); err != nil {
		return nil, fmt.Errorf("decode response: %w", err)
	}
	return answer, nil
}
