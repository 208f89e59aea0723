// Package settings is one table for the settings of a program: each row has a name, where the value goes, its default,
// its meaning and what it may be. Values come from flags, the environment, and a YAML file, in this order of
// precedence. The package knows no program and no feature: they bring their rows.
//
// # To change it
//
//   - how settings are read: setting.go, file.go and program.go; go test ./internal/kit/settings
//   - how settings are shown without their secrets: shown.go; go test ./internal/app/config ./internal/app/server -run
//     'Secrets|Hidden'
//   - how the log is written, also if nobody reads it: common.go and logwriter.go; go test ./internal/kit/settings
package settings
