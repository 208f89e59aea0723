// Package watch reads files of rules again as they change. A [Watcher] hands out a new descriptors.Set whenever files
// are written, replaced, or exchanged behind links, as Kubernetes does with a ConfigMap. Errors in the files of one
// domain leave that domain as it was and the others alone.
//
// # To change it
//
//   - how files are read and followed: descriptors/files, descriptors/watch; go test ./descriptors/files
//     ./descriptors/watch
package watch
