// Package overlay lays over rules what the source that they come from cannot say: algorithms, windows of any length,
// and policies. An [Overlay] is a list of entries, each of which names rules by the patterns of their domains and
// paths.
//
// # To change it
//
//   - what an overlay can say: descriptors/rulefile/overlay.go reads it, descriptors/overlay lays it over rules; go
//     test ./descriptors/overlay
package overlay
