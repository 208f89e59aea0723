// Package config is the server's own configuration: the settings of `headgate serve` and of the features that it
// serves. Rules are not configuration; they belong to package descriptors.
//
// A new setting is a field of [Config] and a row of the table below it. How settings are read is in package settings.
//
// # To change it
//
//   - a setting: config.go, slots.go, admin.go, xds.go, policies.go: a field and a row, how settings are read and
//     checked: internal/kit/settings, go test ./test/repo -update renews docs/reference.md; go test
//     ./internal/app/config ./test/repo
package config
