// lint has the linters of `make lint` that the server's module does not depend
// on: a vet tool with several analyzers, unparam, errcheck, misspell, and actionlint for the workflows of CI.
module github.com/headgate-rls/headgate/tools/lint

go 1.26.0

require (
	github.com/gordonklaus/ineffassign v0.2.0
	golang.org/x/tools v0.51.0
)

require (
	github.com/bmatcuk/doublestar/v4 v4.10.0 // indirect
	github.com/clipperhouse/uax29/v2 v2.7.0 // indirect
	github.com/fatih/color v1.19.0 // indirect
	github.com/golangci/misspell v0.8.0 // indirect
	github.com/kisielk/errcheck v1.30.0 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/mattn/go-runewidth v0.0.21 // indirect
	github.com/mattn/go-shellwords v1.0.12 // indirect
	github.com/rhysd/actionlint v1.7.12 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
	go.yaml.in/yaml/v4 v4.0.0-rc.3 // indirect
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/sync v0.23.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	mvdan.cc/unparam v0.0.0-20260823230713-2fa3d841b0c8 // indirect
)

tool (
	github.com/golangci/misspell/cmd/misspell
	github.com/kisielk/errcheck
	github.com/rhysd/actionlint/cmd/actionlint
	mvdan.cc/unparam
)
