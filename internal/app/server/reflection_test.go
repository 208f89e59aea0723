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
		if in := found.(protoreflect.MethodDescriptor).Input().FullName(); in !=
			"envoy.service.ratelimit.v3.RateLimitRequest" {
			t.Errorf("%s takes a %s", m.Path(), in)
		}
	}
}
