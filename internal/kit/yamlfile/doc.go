// Package yamlfile reads files of one YAML document, and reports where a text is not valid YAML. Files of rules and
// files of settings have nothing else in common.
//
// # To change it
//
//   - how YAML documents are read: split.go, yamlfile.go; go test ./internal/kit/yamlfile
package yamlfile
