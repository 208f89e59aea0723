#!/usr/bin/env bash
# Makes the files of a release from what is checked out.
#
#   scripts/release.sh v1.2.3 [DIR]      writes to DIR, by default dist
#
# DIR gets, for each platform, an archive of headgate, one of headgate-rlsonly and one of the notification gateway;
# headgate-oracle for this machine's own platform, if that is among them and a Linux; beside each archive the modules in
# it, as a list and as a bill of materials (CycloneDX); the chart; the images of headgate and headgate-rlsonly for all
# architectures (OCI archives); SHA256SUMS.
# The same source, Go and tools make the same bytes, wherever they are. To headgate-oracle the C compiler is one of the
# tools, and it runs with the C library of this machine, or a newer one. These variables change what is made:
#
#   PLATFORMS          which archives, as OS/ARCH …; the image has those of linux
#   CERTIFICATES       the file of authorities in the image, by default that of this system
#   HELM               the program helm, by default built from tools/kubernetes
#   SOURCE_DATE_EPOCH  the time of all files, by default that of the commit
#   REVISION           the commit, by default that of git, which must have no other changes
set -euo pipefail
export LC_ALL=C TZ=UTC
umask 022

die() { printf 'release: error: %s\n' "$*" >&2; exit 1; }

[ $# = 1 ] || [ $# = 2 ] || die "usage: scripts/release.sh v1.2.3 [DIR]"
readonly VERSION=$1
[[ $VERSION =~ ^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z]+([.-][0-9A-Za-z]+)*)?$ ]] || die "$VERSION is not a version such as v1.2.3 or v1.2.3-rc.1"
mkdir -p "${2:-dist}"
OUT=$(cd "${2:-dist}" && pwd)
readonly OUT
[ -z "$(ls -A "$OUT")" ] || die "$OUT is not empty"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
grep -q "^## $VERSION," CHANGELOG.md || die "CHANGELOG.md has no section about $VERSION. Make it with: make changelog RELEASE=$VERSION"
grep -qx "appVersion: $VERSION" charts/headgate/Chart.yaml || die "charts/headgate/Chart.yaml does not have appVersion: $VERSION, and so examples and pages name another image. make changelog sets it"
if [ -z "${REVISION:-}" ]; then
	[ -z "$(git status --porcelain)" ] || die "there are changes that are not committed"
	REVISION=$(git rev-parse HEAD)
	SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
fi
[ -n "${SOURCE_DATE_EPOCH:-}" ] || die "SOURCE_DATE_EPOCH is not set, but REVISION is"
readonly REVISION SOURCE_DATE_EPOCH
readonly PLATFORMS=${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}
readonly CERTIFICATES=${CERTIFICATES:-/etc/ssl/certs/ca-certificates.crt}
[ -s "$CERTIFICATES" ] || die "there is no $CERTIFICATES: install the package ca-certificates, or set CERTIFICATES"

# What else of the environment would change the programs.
unset GOFLAGS GOEXPERIMENT GOAMD64 GOARM64 GOOS GOARCH CC CGO_CFLAGS CGO_CPPFLAGS CGO_LDFLAGS
export CGO_ENABLED=0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# pack FOLDER ARCHIVE: the same bytes for the same files.
pack() {
	tar -C "${1%/*}" --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "${1##*/}" | gzip -9n >"$2"
}

# licenses TAGS PACKAGE…: what the licenses of the modules in these programs demand to be with them.
licenses() {
	local module dir file found
	go list -deps -tags="$1" -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}	{{.Dir}}{{end}}{{end}}' "${@:2}" | sort -u | while IFS=$'\t' read -r module dir; do
		found=
		for file in "$dir"/{LICENSE,COPYING,NOTICE}*; do
			[ -f "$file" ] || continue
			found=yes
			printf '==== %s: %s\n\n' "$module" "${file##*/}"
			cat "$file"
			printf '\n\n'
		done
		[ -n "$found" ] || die "$module has no license"
	done
}

# programs NAME PLATFORMS TAGS PACKAGE…: an archive of these programs, built with these tags, for each platform.
programs() {
	local name=$1 platforms=$2 tags=$3 platform folder
	shift 3
	go mod download
	licenses "$tags" "$@" >"$work/licenses"
	for platform in $platforms; do
		folder=$work/$platform/${name}_${VERSION}_${platform/\//_}
		mkdir -p "$folder"
		GOOS=${platform%/*} GOARCH=${platform#*/} go build -tags="$tags" -trimpath -buildvcs=false -ldflags "$LINK -X main.version=$VERSION" -o "$folder/" "$@"
		(cd "$folder" && go version -m -- *) >"$OUT/${folder##*/}.modules.txt"
		"$work/sbom" "$name" "$VERSION" "$SOURCE_DATE_EPOCH" "$folder"/* >"$OUT/${folder##*/}.cdx.json"
		cp LICENSE README.md "$folder/"
		cp "$work/licenses" "$folder/THIRD-PARTY-LICENSES"
		pack "$folder" "$OUT/${folder##*/}.tar.gz"
	done
}

# oracle makes headgate-oracle: a compiler for C knows one platform.
oracle() {
	local platform
	platform=$(go env GOHOSTOS)/$(go env GOHOSTARCH)
	[[ $platform = linux/* && " $PLATFORMS " = *" $platform "* ]] || return 0
	command -v gcc >/dev/null || die "there is no gcc, which builds Oracle's driver"
	CGO_ENABLED=1 programs headgate-oracle "$platform" godror ./cmd/headgate
}

chart() {
	local helm=${HELM:-$work/helm}
	[ -n "${HELM:-}" ] || go -C tools/kubernetes build -o "$helm" helm.sh/helm/v3/cmd/helm
	"$helm" lint --strict charts/headgate --values charts/headgate/ci/memory-values.yaml >/dev/null
	"$helm" package charts/headgate --version "${VERSION#v}" --app-version "$VERSION" --destination "$work" >/dev/null
	# Helm packs the time of day, too.
	mkdir "$work/chart"
	tar -C "$work/chart" -xmzf "$work/headgate-${VERSION#v}.tgz"
	pack "$work/chart/headgate" "$OUT/headgate-${VERSION#v}.tgz"
}

# image NAME: the image of the programs with this name, for all architectures.
image() {
	local name=$1 platform programs=()
	for platform in $PLATFORMS; do
		[ "${platform%/*}" = linux ] || continue
		programs+=("${platform#*/}=$work/$platform/${name}_${VERSION}_${platform/\//_}/headgate")
	done
	[ ${#programs[@]} -gt 0 ] || return 0
	go -C tools/image build -o "$work/image-tool" .
	"$work/image-tool" write "$work/image-$name" "$VERSION" "$REVISION" "$SOURCE_DATE_EPOCH" "$CERTIFICATES" "${programs[@]}"
	tar -C "$work/image-$name" --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
		-cf "$OUT/${name}_${VERSION}_image.tar" oci-layout index.json blobs
}

go -C tools/sbom build -o "$work/sbom" .
LINK='-s -w'
programs headgate "$PLATFORMS" "" ./cmd/headgate
LINK='-s -w -funcalign=4' # a hundredth smaller
programs headgate-rlsonly "$PLATFORMS" rlsonly,grpcnotrace,nethttpomithttp2 ./cmd/headgate
LINK='-s -w'
programs notify "$PLATFORMS" "" ./cmd/notify-gateway ./cmd/notify-sender
oracle
chart
image headgate
image headgate-rlsonly
(cd "$OUT" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS)
printf 'release: %s is in %s:\n' "$VERSION" "$OUT"
(cd "$OUT" && ls -l | awk 'NR > 1 { printf "  %10d  %s\n", $5, $9 }')
