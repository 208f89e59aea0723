package xds

import (
	"errors"
	"fmt"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/headgate-rls/headgate/internal/kit/protofields"
)

// A codec sends messages as gRPC does, and hands received ones out as bytes: what they
// hold is counted before they are decoded.
type codec struct{}

var _ encoding.CodecV2 = codec{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	b, err := proto.Marshal(v.(proto.Message))
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// A response is a DiscoveryResponse whose resources are not decoded.
type response struct {
	version, nonce, typeURL string
	resources               [][]byte // encoded Any messages
}

// parse reads an encoded DiscoveryResponse. An error is one of the protocol.
func parse(b []byte) (*response, error) {
	const version, resources, typeURL, nonce = 1, 2, 4, 5
	resp := new(response)
	r := protofields.Of(b)
	for r.Next() {
		switch {
		case r.IsBytes(version):
			resp.version = string(r.Value)
		case r.IsBytes(resources):
			if len(resp.resources) == maxDomains {
				return nil, fmt.Errorf("the control plane sends more than %d resources", maxDomains)
			}
			resp.resources = append(resp.resources, r.Value)
		case r.IsBytes(typeURL):
			resp.typeURL = string(r.Value)
		case r.IsBytes(nonce):
			resp.nonce = string(r.Value)
		}
	}
	switch {
	case r.Malformed:
		return nil, errMalformed
	case len(resp.version) > maxName || len(resp.nonce) > maxName:
		return nil, fmt.Errorf("the control plane sends a version or nonce of more than %d bytes", maxName)
	case resp.typeURL != typeURLOfRules:
		return nil, fmt.Errorf("the control plane sends resources of the type %.100q; want %q", resp.typeURL, typeURLOfRules)
	}
	return resp, nil
}

// typeURLOfRules is the type of the resources.
const typeURLOfRules = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// open reads one resource of a response.
func open(encoded []byte) (r resource, err error) {
	const typeURL, value, wrapped = 1, 2, "type.googleapis.com/envoy.service.discovery.v3.Resource"
	var kind []byte
	f := protofields.Of(encoded)
	for f.Next() {
		switch {
		case f.IsBytes(typeURL):
			kind = f.Value
		case f.IsBytes(value):
			r.raw = f.Value
		}
	}
	switch {
	case f.Malformed:
		return r, errMalformed
	case string(kind) == wrapped:
		return r, errors.New("a resource is wrapped in a Resource message, which headgate does not read")
	case string(kind) != typeURLOfRules:
		return r, fmt.Errorf("a resource has the type %.100q; want %q", kind, typeURLOfRules)
	}
	if r.domain, err = domainOf(r.raw); err != nil {
		return r, err
	}
	r.size, err = sizeOf(r.raw)
	return r, err
}

// method is the stream of all resources.
const method = discovery.AggregatedDiscoveryService_StreamAggregatedResources_FullMethodName
