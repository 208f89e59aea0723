//go:build !rlsonly

package server

import (
	"strings"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/headgate-rls/headgate/internal/wire/transport"
)

// registerReflection makes g answer reflection, by which some gateways find methods.
func registerReflection(g *grpc.Server) {
	for _, m := range transport.Methods {
		registerService(m.Service)
	}
	reflection.Register(g)
}

// registerService registers a file that describes a service with messages of Envoy, unless one is registered.
func registerService(service string) {
	name := protoreflect.FullName(service)
	if _, err := protoregistry.GlobalFiles.FindDescriptorByName(name); err == nil {
		return
	}
	envoy := rls.File_envoy_service_ratelimit_v3_rls_proto
	message := func(name protoreflect.Name) *string { return new("." + string(envoy.Package().Append(name))) }
	described := &descriptorpb.ServiceDescriptorProto{Name: new(string(name.Name()))}
	for _, m := range transport.Methods {
		if m.Service == service {
			described.Method = append(described.Method, &descriptorpb.MethodDescriptorProto{
				Name: &m.Name, InputType: message("RateLimitRequest"), OutputType: message("RateLimitResponse"),
			})
		}
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Syntax: new("proto3"), Name: new(strings.ReplaceAll(service, ".", "/") + ".proto"),
		Package: new(string(name.Parent())), Dependency: []string{envoy.Path()},
		Service: []*descriptorpb.ServiceDescriptorProto{described},
	}, protoregistry.GlobalFiles)
	if err == nil {
		_ = protoregistry.GlobalFiles.RegisterFile(file) // if it fails, reflection knows only the name
	}
}
