// Package watch reads files of rules again as they change. A [Watcher] hands out a new descriptors.Set whenever files
// are written, replaced, or exchanged behind links, as Kubernetes does with a ConfigMap. Errors in the files of one
// domain leave that domain as it was and the others alone.
//
// # To change it
//
//   - when files are read again: watch.go, settle.go and descriptors/files/watcher.go; go test ./descriptors/watch
//     ./descriptors/files
//   - which domains keep their old rules: keep.go; go test ./descriptors/watch
package watch
