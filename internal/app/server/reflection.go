//go:build !rlsonly

package server

import (
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate-rls/headgate/internal/wire/transport"
)

// registerReflection makes g answer reflection, by which some gateways find methods.
func registerReflection(g *grpc.Server) {
	for _, m := range transport.Methods {
		registerService(m.Service)
	}
	reflection.Register(g)
}

// kuadrantMessages are the messages of Kuadrant's service that are not Envoy's, with the names, numbers and types of
// their fields.
var kuadrantMessages = []*descriptorpb.DescriptorProto{
	described("ReserveRequest", text("domain", 1), manyDescriptors(2), number("amount", 3),
		field("ttl", 4, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, ".google.protobuf.Duration")),
	described("ReserveResponse", code("code", 1), text("reservation_id", 2)),
	described("CommitRequest", text("domain", 1), manyDescriptors(2), text("reservation_id", 3),
		number("actual_amount", 4)),
	described("CommitResponse", code("code", 1)),
}

func described(name string, fields ...*descriptorpb.FieldDescriptorProto) *descriptorpb.DescriptorProto {
	return &descriptorpb.DescriptorProto{Name: &name, Field: fields}
}

func field(name string, n int32, of descriptorpb.FieldDescriptorProto_Type, message string,
) *descriptorpb.FieldDescriptorProto {
	f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &n, Type: &of,
		Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
	if message != "" {
		f.TypeName = &message
	}
	return f
}

func text(name string, n int32) *descriptorpb.FieldDescriptorProto {
	return field(name, n, descriptorpb.FieldDescriptorProto_TYPE_STRING, "")
}

func number(name string, n int32) *descriptorpb.FieldDescriptorProto {
	return field(name, n, descriptorpb.FieldDescriptorProto_TYPE_UINT64, "")
}

func code(name string, n int32) *descriptorpb.FieldDescriptorProto {
	return field(name, n, descriptorpb.FieldDescriptorProto_TYPE_ENUM,
		"."+string((rls.RateLimitResponse_UNKNOWN).Descriptor().FullName()))
}

func manyDescriptors(n int32) *descriptorpb.FieldDescriptorProto {
	f := field("descriptors", n, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE,
		"."+string((*common.RateLimitDescriptor)(nil).ProtoReflect().Descriptor().FullName()))
	f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	return f
}

// registerService registers a file that describes a service, unless one is registered.
func registerService(service string) {
	name := protoreflect.FullName(service)
	if _, err := protoregistry.GlobalFiles.FindDescriptorByName(name); err == nil {
		return
	}
	envoy := rls.File_envoy_service_ratelimit_v3_rls_proto
	message := func(own, envoys protoreflect.Name) *string {
		if own != "" {
			return new("." + string(name.Parent().Append(own)))
		}
		return new("." + string(envoy.Package().Append(envoys)))
	}
	described := &descriptorpb.ServiceDescriptorProto{Name: new(string(name.Name()))}
	for _, m := range transport.Methods {
		if m.Service == service {
			described.Method = append(described.Method, &descriptorpb.MethodDescriptorProto{
				Name:       &m.Name,
				InputType:  message(protoreflect.Name(m.Request), "RateLimitRequest"),
				OutputType: message(protoreflect.Name(m.Response), "RateLimitResponse"),
			})
		}
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Syntax: new("proto3"), Name: new(strings.ReplaceAll(service, ".", "/") + ".proto"),
		Package: new(string(name.Parent())), MessageType: kuadrantMessages,
		Dependency: []string{envoy.Path(), common.File_envoy_extensions_common_ratelimit_v3_ratelimit_proto.Path(),
			durationpb.File_google_protobuf_duration_proto.Path()},
		Service: []*descriptorpb.ServiceDescriptorProto{described},
	}, protoregistry.GlobalFiles)
	if err == nil {
		_ = protoregistry.GlobalFiles.RegisterFile(file) // if it fails, reflection knows only the name
	}
}
