// Package protofields reads encoded protobuf messages field by field, without generated code and without allocations.
//
// # To change it
//
//   - how fields of protobuf messages are read: protofields.go; go test ./internal/kit/protofields
package protofields
