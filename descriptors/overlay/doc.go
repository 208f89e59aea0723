// Package overlay lays over rules what the source that they come from cannot say: algorithms, windows of any length,
// and policies. An [Overlay] is a list of entries, each of which names rules by the patterns of their domains and
// paths.
//
// # To change it
//
//   - what an overlay can say: overlay.go, apply.go and descriptors/rulefile/overlay.go (reads it); go test
//     ./descriptors/overlay ./descriptors/rulefile
//   - which rules a pattern names: glob.go; go test ./descriptors/overlay
package overlay
