// Package files reads files of rules. Package descriptors/watch reads them again as they change.
package files
