// Package layers has the order of the layers around a store that is elsewhere. Such a store names [Around] in its
// [backends.Kind]. It is a package of its own so that a program whose counters are in memory has no layers in it.
//
// To add a layer, add a line to Around and a name to the list in docs/design.md.
//
// # To change it
//
//   - add a layer, their order: a folder in backends/layers, a line in layers.go, one in docs/design.md; go test
//     ./backends/stack ./backends/layers/...
package layers
