// Package yamlfile reads files of one YAML document and says where a text stops to be YAML. It is a package of its own
// because files of rules and files of settings have nothing else in common.
package yamlfile
