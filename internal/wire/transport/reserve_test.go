package transport_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/headgate-rls/headgate/internal/wire/transport"
)

// Kuadrant's messages as its gateway has them, with bytes in place of what its file imports:
// https://github.com/Kuadrant/limitador/pull/515, kuadrantrls.proto.
var kuadrantFile = func() protoreflect.FileDescriptor {
	field := func(name string, n int32, of descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{Name: &name, Number: &n, Type: &of,
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
	}
	message := func(name string, fields ...*descriptorpb.FieldDescriptorProto) *descriptorpb.DescriptorProto {
		return &descriptorpb.DescriptorProto{Name: &name, Field: fields}
	}
	const (
		text, number = descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_UINT64
		bytes, code  = descriptorpb.FieldDescriptorProto_TYPE_BYTES, descriptorpb.FieldDescriptorProto_TYPE_INT32
	)
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{Name: new("kuadrantrls.proto"), Syntax: new("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{
			message("ReserveRequest", field("domain", 1, text), field("descriptors", 2, bytes), field("amount", 3, number),
				field("ttl", 4, bytes)),
			message("ReserveResponse", field("code", 1, code), field("reservation_id", 2, text)),
			message("CommitRequest", field("domain", 1, text), field("descriptors", 2, bytes),
				field("reservation_id", 3, text), field("actual_amount", 4, number)),
			message("CommitResponse", field("code", 1, code)),
		}}, nil)
	if err != nil {
		panic(err)
	}
	return file
}()

// A kuadrantMessage is one of these messages.
type kuadrantMessage struct{ *dynamicpb.Message }

func newKuadrant(name string) kuadrantMessage {
	return kuadrantMessage{dynamicpb.NewMessage(kuadrantFile.Messages().ByName(protoreflect.Name(name)))}
}

func (m kuadrantMessage) set(field string, v any) kuadrantMessage {
	m.Set(m.Descriptor().Fields().ByName(protoreflect.Name(field)), protoreflect.ValueOf(v))
	return m
}

func (m kuadrantMessage) get(field string) protoreflect.Value {
	return m.Get(m.Descriptor().Fields().ByName(protoreflect.Name(field)))
}

// about encodes a descriptor of one entry.
func about(key string) []byte {
	entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), key)
	entry = protowire.AppendString(protowire.AppendTag(entry, 2, protowire.BytesType), "v")
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), entry)
}

func invoke(conn *grpc.ClientConn, m *transport.Method, in, out proto.Message) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return conn.Invoke(ctx, m.Path(), in, out)
}

const (
	codeOK   = 1
	codeOver = 2
)

// reserve reserves units of a key.
func reserve(t *testing.T, conn *grpc.ClientConn, key string, amount uint64) (code int64, id string) {
	t.Helper()
	out := newKuadrant("ReserveResponse")
	in := newKuadrant("ReserveRequest").set("domain", "d").set("descriptors", about(key)).set("amount", amount).
		set("ttl", protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 30))
	if err := invoke(conn, transport.Reserve, in, out); err != nil {
		t.Fatal(err)
	}
	return out.get("code").Int(), out.get("reservation_id").String()
}

func commit(conn *grpc.ClientConn, key, id string, actual uint64) (code int64, err error) {
	out := newKuadrant("CommitResponse")
	in := newKuadrant("CommitRequest").set("domain", "d").set("descriptors", about(key)).set("reservation_id", id).
		set("actual_amount", actual)
	err = invoke(conn, transport.Commit, in, out)
	return out.get("code").Int(), err
}

// TestKuadrantReservesAndCommits: of 100 requests that reserve 3,000 each, a budget of 10,000 lets three pass at once.
// What they do not use comes back when they commit, once.
func TestKuadrantReservesAndCommits(t *testing.T) {
	for _, key := range []string{"held", "held-oldest"} {
		t.Run(key, func(t *testing.T) {
			onTransports(t, func(t *testing.T, conn *grpc.ClientConn) {
				var ids []string
				for range 100 {
					switch code, id := reserve(t, conn, key, 3000); {
					case code == codeOK && id != "":
						ids = append(ids, id)
					case code != codeOver || id != "":
						t.Fatalf("code %d, id %q", code, id)
					}
				}
				if len(ids) != 3 {
					t.Fatalf("%d pass, want 3", len(ids))
				}
				for range 2 { // the second time nothing comes back
					if code, err := commit(conn, key, ids[0], 1000); code != codeOK || err != nil {
						t.Errorf("commit: %d, %v", code, err)
					}
				}
				if _, id := reserve(t, conn, key, 3000); id == "" {
					t.Error("2,000 came back of 3,000, and 1,000 were left: there is room for 3,000")
				}
				if code, _ := reserve(t, conn, key, 1); code != codeOver {
					t.Error("more came back than was reserved")
				}
				if _, err := commit(conn, key, ids[0]+"x", 0); err != nil {
					t.Errorf("a forged ID: %v", err)
				}
				if code, _ := reserve(t, conn, key, 1); code != codeOver && key == "held" {
					t.Error("something came back for a forged ID")
				}
				if code, err := commit(conn, key, ids[1], 0); code != codeOK || err != nil { // as if its usage cannot be read
					t.Errorf("commit: %d, %v", code, err)
				}
				if _, id := reserve(t, conn, key, 2999); id == "" {
					t.Error("3,000 came back, and there is no room for 2,999")
				}
			})
		})
	}
}

// TestKuadrantReservesNothingWithoutReserve: a rule without reserve is asked, and Commit reports, with an ID of another
// rule and without one.
func TestKuadrantReservesNothingWithoutReserve(t *testing.T) {
	onTransports(t, func(t *testing.T, conn *grpc.ClientConn) {
		passed := 0
		for range 100 {
			code, id := reserve(t, conn, "tokens", 3000)
			if id != "" {
				t.Fatalf("id %q", id)
			}
			if code != codeOK {
				continue
			}
			passed++
			if _, err := commit(conn, "tokens", "", 3000); err != nil {
				t.Fatal(err)
			}
		}
		if passed != 4 {
			t.Errorf("%d requests passed, want 4 as by checks and reports", passed)
		}
		_, id := reserve(t, conn, "held", 3000)
		if _, err := commit(conn, "exact", id, 4); err != nil {
			t.Fatal(err)
		}
		if resp, err := call(conn, transport.CheckRateLimit, "exact", 0); err != nil || resp.Statuses[0].LimitRemaining != 6 {
			t.Errorf("beside a reservation: %v, %v, want 6 left", resp, err)
		}
	})
}

// TestMalformedReservations are errors that say so.
func TestMalformedReservations(t *testing.T) {
	for name, in := range map[string][]byte{
		"truncated": {0x0a, 5, 'd'},
		"no domain": protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), about("held")),
		"not UTF-8": protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "\xff"),
		"id":        protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), "\xff"),
	} {
		for _, m := range []*transport.Method{transport.Reserve, transport.Commit} {
			onTransports(t, func(t *testing.T, conn *grpc.ClientConn) {
				message := newKuadrant("CommitResponse")
				message.SetUnknown(nil)
				err := invoke(conn, m, rawMessage(in), message)
				if status.Code(err) != codes.InvalidArgument {
					t.Errorf("%s, %s: %v", m.Name, name, err)
				}
			})
		}
	}
}

// rawMessage returns a message with these bytes.
func rawMessage(b []byte) proto.Message {
	m := newKuadrant("CommitResponse")
	m.SetUnknown(b)
	return m
}
