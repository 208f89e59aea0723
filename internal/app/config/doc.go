// Package config is the server's own configuration: the settings of `headgate serve` and of the features that it
// serves. Rules are not configuration; they belong to package descriptors.
//
// A new setting is a field of [Config] and a row of the table below it. How settings are read is in package settings.
//
// # To change it
//
//   - a setting: a field and a row in config.go, slots.go, admin.go, xds.go or policies.go; go test
//     ./internal/app/config; go test ./test/repo -update (renews docs/reference.md)
//   - how settings are read and checked: internal/kit/settings; go test ./internal/kit/settings ./internal/app/config
package config
