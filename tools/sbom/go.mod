// sbom lists the modules in the programs of a release, in CycloneDX. It is a module of its own so that the server's
// module does not depend on it; scripts/release.sh runs it.
module github.com/headgate-rls/headgate/tools/sbom

go 1.26.0

require github.com/CycloneDX/cyclonedx-go v0.9.2
