// lint has the linters of `make lint` that the server's module does not depend
// on: a vet tool with several analyzers, and unparam.
module github.com/headgate-rls/headgate/tools/lint

go 1.26.0

require (
	github.com/gordonklaus/ineffassign v0.2.0
	golang.org/x/tools v0.51.0
)

require (
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/sync v0.23.0 // indirect
	mvdan.cc/unparam v0.0.0-20260823230713-2fa3d841b0c8 // indirect
)

tool mvdan.cc/unparam
