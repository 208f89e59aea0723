// Package files reads files of rules. Package descriptors/watch reads them again as they change.
//
// # To change it
//
//   - how files are read: files.go and once.go; go test ./descriptors/files
//   - how files are followed: watcher.go and descriptors/watch; go test ./descriptors/files ./descriptors/watch
package files
