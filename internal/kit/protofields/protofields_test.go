package protofields

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// A field is one that a test reads.
type field struct {
	num    protowire.Number
	number uint64
	value  string
}

func readAll[T string | []byte](message T) (list []field, ok bool) {
	r := Of(message)
	for r.Next() {
		for num := protowire.Number(1); num < 20; num++ {
			if r.IsNumber(num) || r.IsBytes(num) {
				list = append(list, field{num, r.Number, string(r.Value)})
			}
		}
	}
	return list, !r.Malformed
}

// byProtowire reads what protowire understands, and rejects the numbers that
// generated code rejects.
func byProtowire(message []byte) (list []field, ok bool) {
	for len(message) > 0 {
		num, typ, n := protowire.ConsumeTag(message)
		if n < 0 || num > protowire.MaxValidNumber {
			return list, false
		}
		message = message[n:]
		f := field{num: num}
		var value []byte
		switch typ {
		case protowire.VarintType:
			f.number, n = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(message)
			f.value = string(value)
		default:
			n = protowire.ConsumeFieldValue(num, typ, message)
		}
		if n < 0 {
			return list, false
		}
		message = message[n:]
		if num < 20 && (typ == protowire.VarintType || typ == protowire.BytesType) {
			list = append(list, f)
		}
	}
	return list, true
}

// FuzzReader: a reader finds the fields that protowire finds, in strings as in
// bytes, and calls malformed what protowire does.
func FuzzReader(f *testing.F) {
	message := protowire.AppendTag(nil, 1, protowire.BytesType)
	message = protowire.AppendString(message, "name")
	message = protowire.AppendTag(message, 2, protowire.VarintType)
	message = protowire.AppendVarint(message, 1<<63)
	message = protowire.AppendTag(message, 3, protowire.Fixed64Type)
	message = protowire.AppendFixed64(message, 7)
	message = protowire.AppendTag(message, 4, protowire.StartGroupType)
	message = protowire.AppendTag(message, 4, protowire.EndGroupType)
	message = protowire.AppendTag(message, 19, protowire.BytesType)
	message = protowire.AppendBytes(message, nil)
	for n := range message {
		f.Add(message[:n+1])
	}
	f.Add(protowire.AppendTag(nil, protowire.MaxValidNumber, protowire.VarintType))
	f.Add([]byte{0x00, 0x01})
	f.Add(append(bytes.Repeat([]byte{0xff}, 9), 1, 1))
	f.Add(append([]byte{0x0a}, append(bytes.Repeat([]byte{0xff}, 9), 1)...))
	f.Fuzz(func(t *testing.T, message []byte) {
		want, wantOK := byProtowire(message)
		for name, read := range map[string]func() ([]field, bool){
			"bytes":  func() ([]field, bool) { return readAll(message) },
			"string": func() ([]field, bool) { return readAll(string(message)) },
		} {
			got, ok := read()
			if ok != wantOK || len(got) != len(want) {
				t.Fatalf("%s: %v, %v; protowire finds %v, %v", name, got, ok, want, wantOK)
			}
			for i := range got {
				if got[i] != want[i] {
					t.Errorf("%s: field %d is %v, want %v", name, i, got[i], want[i])
				}
			}
		}
	})
}
