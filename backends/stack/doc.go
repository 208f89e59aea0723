// Package stack opens the store that a URL names and puts the layers around it.
// It has the only list of stores and the only order of layers: the server, the
// benchmark and the command line get their stores here.
//
// To add a store, add a line to kinds in stores.go. To add a layer, add a line
// to layers in layers.go and a name to the list in docs/design.md.
//
// The package knows no rules, no protocol and no metrics library.
// [Stack.Figures] returns the metrics of the store and its layers.
package stack
