package server

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/headgate-rls/headgate/internal/wire/transport"
)

// TestReflectionKnowsAllMethods: clients find the methods and their messages by name, Kuadrant's too.
func TestReflectionKnowsAllMethods(t *testing.T) {
	registerReflection(grpc.NewServer())
	registerReflection(grpc.NewServer()) // a second one is no conflict
	for _, m := range transport.Methods {
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(m.Service + "." + m.Name))
		if err != nil {
			t.Errorf("%s: %v", m.Path(), err)
			continue
		}
		want := protoreflect.FullName("envoy.service.ratelimit.v3.RateLimitRequest")
		if m.Request != "" {
			want = protoreflect.FullName(m.Service).Parent().Append(protoreflect.Name(m.Request))
		}
		if in := found.(protoreflect.MethodDescriptor).Input().FullName(); in != want {
			t.Errorf("%s takes a %s, want %s", m.Path(), in, want)
		}
	}
}
