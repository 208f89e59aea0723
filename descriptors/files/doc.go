// Package files reads files of rules. Package descriptors/watch reads them again as they change.
//
// # To change it
//
//   - how files are read and followed: descriptors/files, descriptors/watch; go test ./descriptors/files
//     ./descriptors/watch
package files
