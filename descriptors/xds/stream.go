package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"
)

// Bounds of a connection.
const (
	connectWithin = 20 * time.Second // handshakes of TLS and HTTP/2 included
	sendWithin    = 30 * time.Second // for a control plane that does not read
	maxHeaders    = 64 << 10
	maxNack       = 16 << 10 // bytes of the text that lists all problems
)

// A stream is one connection to the control plane, with its only stream.
type stream struct {
	conn     *grpc.ClientConn
	calls    grpc.ClientStream
	cancel   context.CancelFunc
	received chan received // by the goroutine that reads, until it ends
	node     *core.Node
}

// A received is what came of reading one message.
type received struct {
	message []byte
	err     error
}

// dial opens a connection, asks for the rules, and starts to read. The caller closes the
// stream.
func (o *Options) dial(ctx context.Context) (*stream, error) {
	creds, err := o.credentials()
	if err != nil {
		return nil, err
	}
	// Pings of gRPC more often than every five minutes make grpc-go's servers, and so
	// Envoy Gateway, close the connection. Those of TCP find a peer that is gone.
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second,
		Interval: 10 * time.Second, Count: 3}}
	conn, err := grpc.NewClient("passthrough:///"+o.Address,
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			if path, ok := strings.CutPrefix(address, "unix:"); ok {
				return dialer.DialContext(ctx, "unix", path)
			}
			return dialer.DialContext(ctx, "tcp", address)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectWithin}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(o.MaxMessage)),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithUserAgent("headgate"),
		grpc.WithDisableServiceConfig(),
	)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{conn: conn, cancel: cancel, received: make(chan received), node: o.node()}
	if len(o.Headers) > 0 {
		ctx = metadata.NewOutgoingContext(ctx, metadata.New(o.Headers))
	}
	s.calls, err = conn.NewStream(ctx, &discovery.AggregatedDiscoveryService_ServiceDesc.Streams[0], method)
	if err == nil {
		err = s.send(&discovery.DiscoveryRequest{})
	}
	if errors.Is(err, io.EOF) { // gRPC says why to those who read
		err = s.calls.RecvMsg(new([]byte))
	}
	if err != nil {
		s.close()
		return nil, err
	}
	o.Panics.Go("xds", func() { s.read(ctx) })
	return s, nil
}

// node is who headgate is to the control plane.
func (o *Options) node() *core.Node {
	n := &core.Node{Id: o.NodeID, UserAgentName: "headgate"}
	if len(o.Metadata) > 0 {
		n.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
		for name, value := range o.Metadata {
			n.Metadata.Fields[name] = structpb.NewStringValue(value)
		}
	}
	return n
}

// close ends the stream, and with it the goroutine that reads.
func (s *stream) close() {
	s.cancel()
	_ = s.conn.Close() // there is nothing to lose
}

// read hands out messages until the stream ends. What is not fetched is not read, so that
// the control plane has to wait.
func (s *stream) read(ctx context.Context) {
	for {
		var message []byte
		err := s.calls.RecvMsg(&message)
		select {
		case s.received <- received{message, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// send sends a request, which must not take long: if the control plane does not read, the
// stream ends.
func (s *stream) send(req *discovery.DiscoveryRequest) error {
	req.Node, req.TypeUrl = s.node, typeURLOfRules
	late := time.AfterFunc(sendWithin, s.cancel)
	err := s.calls.SendMsg(req)
	if !late.Stop() && err == nil {
		err = fmt.Errorf("the control plane does not read what it is sent")
	}
	return err
}

// answer acknowledges a response, or says what is wrong with it. Accepted is the last
// version that was acknowledged.
func (s *stream) answer(resp *response, accepted string, wrong []string) error {
	req := &discovery.DiscoveryRequest{VersionInfo: accepted, ResponseNonce: resp.nonce}
	if len(wrong) > 0 {
		req.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument),
			Message: cut(strings.ToValidUTF8(strings.Join(wrong, "\n"), "?"), maxNack)}
	}
	return s.send(req)
}

// cut returns the beginning of a text, at most so many bytes of it and what says so.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " …"
}
