// Package release checks what scripts/release.sh makes: archives, the chart, the image.
package release

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

const (
	version  = "v1.2.3-rc.4"
	revision = "0123456789abcdef0123456789abcdef01234567"
	folder   = "headgate_" + version + "_linux_"
)

func TestMain(m *testing.M) {
	testenv.Main(m, func(string, string) error { return nil })
}

// sources copies the repository to a new directory, as a release has it.
func sources(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	list, err := exec.Command("git", "-C", "../..", "ls-files", "-z", "--cached", "--others",
		"--exclude-standard").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		from := filepath.Join("../..", name)
		info, err := os.Stat(from)
		if errors.Is(err, os.ErrNotExist) { // deleted, and not yet committed
			continue
		}
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if name == "CHANGELOG.md" {
			text = append(text, "\n## "+version+", 2026-01-02\n\n## v9.9.8, 2026-01-01\n"...)
		}
		if name == "charts/headgate/Chart.yaml" {
			text = regexp.MustCompile(`(?m)^appVersion: .*$`).ReplaceAll(text, []byte("appVersion: "+version))
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// script runs scripts/release.sh in a directory of sources.
func script(t *testing.T, dir string, env []string, args ...string) (out string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "scripts/release.sh"), args...)
	cmd.Dir, cmd.WaitDelay = t.TempDir(), 10*time.Second
	cmd.Env = slices.Concat(os.Environ(), []string{"REVISION=" + revision, "SOURCE_DATE_EPOCH=1767312000"}, env)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// build makes a release, and returns the directory that has it.
func build(t *testing.T, env ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	text, err := script(t, sources(t), env, version, out)
	if err != nil {
		t.Fatalf("release.sh: %v\n%s", err, text)
	}
	return out
}

var architectures = []string{"amd64", "arm64"}

// TestReleaseIsReproducible: a release has what it should, its programs run from an empty
// root, and a second one of the same sources, elsewhere and with an empty cache, has the
// same bytes.
func TestReleaseIsReproducible(t *testing.T) {
	if random.Times(0, 1) == 0 {
		t.Skip("builds all programs twice: runs in make releasetest")
	}
	if runtime.GOOS != "linux" {
		t.Skip("not run: the image is of Linux")
	}
	env := []string{"HELM=" + testenv.UseClient(t, testenv.Helm),
		"PLATFORMS=linux/" + strings.Join(architectures, " linux/")}
	dist := build(t, env...)
	t.Run("sums", func(t *testing.T) { checkSums(t, dist) })
	t.Run("archives", func(t *testing.T) { checkArchives(t, dist) })
	t.Run("oracle", func(t *testing.T) { checkOracle(t, dist) })
	t.Run("bills", func(t *testing.T) { checkBills(t, dist) })
	t.Run("chart", func(t *testing.T) { checkChart(t, dist) })
	t.Run("image", func(t *testing.T) { checkImage(t, dist, "headgate") })
	t.Run("rlsonly", func(t *testing.T) { checkImage(t, dist, "headgate-rlsonly") })
	t.Run("again", func(t *testing.T) {
		again := build(t, append(env, "GOCACHE="+t.TempDir())...)
		if one, two := read(t, filepath.Join(dist, "SHA256SUMS")), read(t, filepath.Join(again, "SHA256SUMS")); one != two {
			t.Errorf("a second build differs:\n%s\n%s", one, two)
		}
		checkSums(t, again)
	})
}

// TestReleaseRefused: what is no release is not begun.
func TestReleaseRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("copies all sources")
	}
	dir, full := sources(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "old"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env, version, out, want string
	}{
		{"X=", "1.2.3", t.TempDir(), "1.2.3 is not a version"},
		{"X=", "v1.2", t.TempDir(), "v1.2 is not a version"},
		{"X=", "v1.2.3+dirty", t.TempDir(), "is not a version"},
		{"X=", version, full, "is not empty"},
		{"X=", "v9.9.9", t.TempDir(), "CHANGELOG.md has no section about v9.9.9"},
		{"X=", "v9.9.8", t.TempDir(), "does not have appVersion: v9.9.8"},
		{"SOURCE_DATE_EPOCH=", version, t.TempDir(), "SOURCE_DATE_EPOCH is not set"},
		{"CERTIFICATES=/none", version, t.TempDir(), "there is no /none"},
	} {
		text, err := script(t, dir, []string{c.env}, c.version, c.out)
		if err == nil || !strings.Contains(text, c.want) {
			t.Errorf("%s %s: %v, %q, want %q", c.env, c.version, err, text, c.want)
		}
	}
}

func checkSums(t *testing.T, dist string) {
	t.Helper()
	cmd := exec.Command("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
	cmd.Dir = dist
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	files, err := os.ReadDir(dist)
	if err != nil {
		t.Fatal(err)
	}
	if sums := strings.Count(read(t, filepath.Join(dist, "SHA256SUMS")), "\n"); sums != len(files)-1 {
		t.Errorf("%d sums of %d files", sums, len(files)-1)
	}
}

// checkArchives: each program is of its architecture and static, tells the version, and has the
// modules that the list beside the archive names.
func checkArchives(t *testing.T, dist string) {
	for _, arch := range architectures {
		dir := unpack(t, filepath.Join(dist, folder+arch+".tar.gz"))
		path := filepath.Join(dir, folder+arch, "headgate")
		program, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; program.Machine !=
			machine || program.Section(".interp") != nil {
			t.Errorf("%s: %v, loaded by another program: %v", arch, program.Machine, program.Section(".interp") != nil)
		}
		if err := program.Close(); err != nil {
			t.Fatal(err)
		}
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		modules := read(t, filepath.Join(dist, folder+arch+".modules.txt"))
		for _, m := range info.Deps {
			if !strings.Contains(modules, "\tdep\t"+m.Path+"\t"+m.Version+"\t") {
				t.Errorf("%s: the list has no %s %s", arch, m.Path, m.Version)
			}
			if license := "==== " + m.Path + " " + m.Version +
				": "; !strings.Contains(read(t, filepath.Join(dir, folder+arch, "THIRD-PARTY-LICENSES")), license) {
				t.Errorf("the license of %s is missing", m.Path)
			}
		}
		if len(info.Deps) < 10 || !strings.HasPrefix(modules, "headgate: "+info.GoVersion+"\n") {
			t.Errorf("%s: %d modules, the list begins with %.40q", arch, len(info.Deps), modules)
		}
		if arch == runtime.GOARCH {
			if code, out, errOut := testenv.RunProgram(t, path, nil, "version"); code != 0 || out != "headgate "+version+"\n" {
				t.Errorf("headgate version: %d %q %s", code, out, errOut)
			}
		}
	}
	notify := "notify_" + version + "_linux_" + runtime.GOARCH
	dir := unpack(t, filepath.Join(dist, notify+".tar.gz"))
	for _, name := range []string{"notify-gateway", "notify-sender"} {
		if code, out, errOut := testenv.RunProgram(t, filepath.Join(dir, notify, name), nil, "--help"); code != 0 {
			t.Errorf("%s --help: %d %s%s", name, code, out, errOut)
		}
	}
}

// checkOracle: the program of headgate-oracle has the driver, tells the version, and says what to install where
// Oracle's client is missing; its archive has the driver's license.
func checkOracle(t *testing.T, dist string) {
	name := "headgate-oracle_" + version + "_linux_" + runtime.GOARCH
	dir := filepath.Join(unpack(t, filepath.Join(dist, name+".tar.gz")), name)
	path := filepath.Join(dir, "headgate")
	if code, out, errOut := testenv.RunProgram(t, path, nil, "version"); code != 0 || out != "headgate "+version+"\n" {
		t.Errorf("headgate version: %d %q %s", code, out, errOut)
	}
	if !strings.Contains(read(t, filepath.Join(dir, "THIRD-PARTY-LICENSES")), "==== github.com/godror/godror v") {
		t.Error("the license of the driver is missing")
	}
	if out, err := exec.Command("sh", "-c", "ldconfig -p | grep libclntsh").CombinedOutput(); err == nil {
		t.Skipf("not run: this system has Oracle's client: %s", out)
	}
	for _, flag := range []string{"--slots", "--backend", "--policies"} {
		code, out, errOut := testenv.RunProgram(t, path, nil, "serve", "--example", flag, "oracle://u:hunter2@127.0.0.1:1/X",
			"--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--services", "127.0.0.1:0", "--debug", "127.0.0.1:0")
		if code == 0 || !strings.Contains(errOut, "install Oracle Instant Client") || !strings.Contains(errOut, "DPI-1047") ||
			strings.Contains(out+errOut, "hunter2") {
			t.Errorf("%s without Oracle's client: exit code %d\n%s%s", flag, code, out, errOut)
		}
	}
}

// checkBills: beside each archive of programs is a bill of materials with every module of its list, and Go.
func checkBills(t *testing.T, dist string) {
	archives, err := filepath.Glob(filepath.Join(dist, "*.tar.gz"))
	if err != nil || len(archives) != 3*len(architectures)+1 {
		t.Fatalf("%d archives: %v", len(archives), err)
	}
	for _, archive := range archives {
		base := strings.TrimSuffix(archive, ".tar.gz")
		var bill struct {
			BOMFormat  string
			Metadata   struct{ Component struct{ Version string } }
			Components []struct{ Name, Version, PURL string }
		}
		readJSON(t, base+".cdx.json", &bill)
		if bill.BOMFormat != "CycloneDX" || bill.Metadata.Component.Version != version {
			t.Errorf("%s: %+v", base, bill)
		}
		has := map[string]bool{}
		for _, c := range bill.Components {
			has[c.Name+" "+c.Version] = true
		}
		modules := regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)\t`).FindAllStringSubmatch(read(t, base+".modules.txt"), -1)
		for _, m := range modules {
			if !has[m[1]+" "+m[2]] {
				t.Errorf("%s: the bill has no %s %s", base, m[1], m[2])
			}
		}
		if goVersion := "std " + strings.TrimPrefix(runtime.Version(), "go"); len(modules) < 10 || !has[goVersion] {
			t.Errorf("%s: %d modules, Go is there: %v", base, len(modules), has[goVersion])
		}
	}
}

// checkChart: the package has the version, and its pods run the image of that version.
func checkChart(t *testing.T, dist string) {
	helm := testenv.Require(t, testenv.Helm)
	values, err := filepath.Abs("../../charts/headgate/ci/memory-values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	home := "HELM_CACHE_HOME=" + t.TempDir()
	code, out, errOut := testenv.RunProgram(t, helm, []string{home}, "template", "hg",
		filepath.Join(dist, "headgate-"+version[1:]+".tgz"), "--values", values)
	if code != 0 || !strings.Contains(out, "image: ghcr.io/headgate-rls/headgate:"+version+"\n") ||
		!strings.Contains(out, "helm.sh/chart: headgate-"+version[1:]+"\n") {
		t.Errorf("helm template: %d\n%s%s", code, out, errOut)
	}
}

// checkImage: the image is what the Dockerfile makes, and runs as any user, with nothing but its
// root, which it cannot write to.
func checkImage(t *testing.T, dist, name string) {
	layout := unpack(t, filepath.Join(dist, name+"_"+version+"_image.tar"))
	blob := func(d descriptor) string {
		return filepath.Join(layout, "blobs", strings.Replace(d.Digest, ":", "/", 1))
	}
	var top, index manifest
	readJSON(t, filepath.Join(layout, "index.json"), &top)
	if len(top.Manifests) != 1 {
		t.Fatalf("%d images", len(top.Manifests))
	}
	readJSON(t, blob(top.Manifests[0]), &index)
	var found []string
	for _, d := range index.Manifests {
		var m manifest
		readJSON(t, blob(d), &m)
		var config imageConfig
		readJSON(t, blob(m.Config), &config)
		if d.Platform.Architecture != config.Architecture || config.OS != "linux" {
			t.Errorf("the index says %v, the image %s/%s", d.Platform, config.OS, config.Architecture)
		}
		found = append(found, config.Architecture)
		if want := dockerfile(t); fmt.Sprint(config.Config) != fmt.Sprint(want) {
			t.Errorf("the image has\n%+v\nthe Dockerfile\n%+v", config.Config, want)
		}
		if len(m.Layers) != 1 {
			t.Fatalf("%d layers", len(m.Layers))
		}
		if config.Architecture == runtime.GOARCH {
			runs(t, unpack(t, blob(m.Layers[0])))
		}
	}
	if !slices.Equal(found, architectures) {
		t.Errorf("the image is for %v, want %v", found, architectures)
	}
}

type descriptor struct {
	Digest   string
	Platform struct{ OS, Architecture string }
}

type manifest struct {
	Manifests, Layers []descriptor
	Config            descriptor
}

type imageConfig struct {
	OS, Architecture string
	Config           containerConfig
}

type containerConfig struct {
	User            string
	Entrypoint, Cmd []string
	ExposedPorts    map[string]struct{}
	Labels          map[string]string
}

// dockerfile is what the last stage of the Dockerfile says.
func dockerfile(t *testing.T) (c containerConfig) {
	t.Helper()
	c.ExposedPorts, c.Labels = map[string]struct{}{}, map[string]string{}
	text := strings.ReplaceAll(read(t, "../../Dockerfile"), "\\\n", "")
	for line := range strings.Lines(text[strings.LastIndex(text, "FROM "):]) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		var err error
		switch word {
		case "USER":
			c.User = rest
		case "ENTRYPOINT":
			err = json.Unmarshal([]byte(rest), &c.Entrypoint)
		case "CMD":
			err = json.Unmarshal([]byte(rest), &c.Cmd)
		case "EXPOSE":
			for port := range strings.FieldsSeq(rest) {
				c.ExposedPorts[port+"/tcp"] = struct{}{}
			}
		case "LABEL":
			for _, m := range regexp.MustCompile(`(\S+)="([^"]*)"`).FindAllStringSubmatch(rest, -1) {
				c.Labels[m[1]] = strings.NewReplacer("${VERSION}", version, "${REVISION}", revision).Replace(m[2])
			}
		}
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	return c
}

// runs starts the program by its names in a root that has only the image, as several users.
func runs(t *testing.T, root string) {
	t.Helper()
	if err := exec.Command("unshare", "-m", "true").Run(); err != nil {
		t.Skip("not run: this system does not permit mount namespaces: ", err)
	}
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files[path[len(root):]] = d.Type().String()
		}
		return err
	})
	if names := slices.Sorted(maps.Keys(files)); err != nil ||
		strings.Join(names, " ") != "/bin/headgate /bin/ratelimit /bin/ratelimit_client /bin/ratelimit_config_check "+
			"/etc/ssl/certs/ca-certificates.crt /headgate" {
		t.Fatalf("the image has %v: %v", names, err)
	}
	for dir := root; strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // other users run in there
			t.Fatal(err)
		}
	}
	for _, user := range []string{"65532", "1337", "0"} {
		in := func(command ...string) (path string, args []string) {
			script := fmt.Sprintf(`mount --bind %[1]s %[1]s && mount -o remount,bind,ro %[1]s && exec chroot `+
				`--userspec=%[2]s:%[2]s --groups= %[1]s "$@"`, root, user)
			// What the image's environment is: nothing.
			return "/usr/bin/env", append([]string{"-i", "unshare", "-m", "sh", "-c", "PATH=/usr/sbin:/usr/bin:/sbin:/bin; " +
				script, "sh"}, command...)
		}
		path, args := in("/bin/headgate", "version")
		if code, out, errOut := testenv.RunProgram(t, path, nil, args...); code != 0 || out != "headgate "+version+"\n" {
			t.Errorf("uid %s: /bin/headgate version: %d %q %s", user, code, out, errOut)
		}
		grpc, http := fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t)), fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t))
		path, args = in("/headgate", "serve", "--example", "--grpc", grpc, "--http", http, "--services", "127.0.0.1:0",
			"--debug", "127.0.0.1:0")
		server := testenv.StartProgram(t, path, nil, args...)
		path, args = in("/headgate", "health", "--addr", "http://"+http)
		testenv.Eventually(t, 30*time.Second, "uid "+user+": headgate health", func() string {
			if server.Exited() {
				t.Fatalf("headgate has ended:\n%s", server.Log())
			}
			code, out, errOut := testenv.RunProgram(t, path, nil, args...)
			if code != 0 {
				return out + errOut
			}
			return ""
		})
		if status := read(t, fmt.Sprintf("/proc/%d/status", server.PID())); !strings.Contains(status,
			"\nUid:\t"+user+"\t"+user+"\t"+user) {
			t.Errorf("the process is not that of user %s:\n%s", user, status)
		}
		server.Terminate()
		if code := server.Wait(20 * time.Second); code != 0 {
			t.Errorf("uid %s: exit code %d at the end", user, code)
		}
	}
}

// TestTools: the image arrives in a registry whole, and bills of materials have what is in programs.
func TestTools(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the tools")
	}
	for _, tool := range []string{"image", "sbom"} {
		cmd := exec.Command("go", "test", "./...")
		cmd.Dir = "../../tools/" + tool
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", tool, err, text)
		}
	}
}

// unpack unpacks an archive, compressed or not, into a new directory.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var in io.Reader = bufio.NewReader(f)
	if magic, err := in.(*bufio.Reader).Peek(2); err == nil && bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		if in, err = gzip.NewReader(in); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	r := tar.NewReader(in)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err == nil {
			err = place(filepath.Join(dir, filepath.FromSlash(h.Name)), h, r)
		}
		if err != nil {
			t.Fatalf("%s: %v", archive, err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Mode&0o022 != 0 && h.Typeflag != tar.TypeSymlink {
			t.Errorf("%s: %s is of %d:%d, mode %o", archive, h.Name, h.Uid, h.Gid, h.Mode)
		}
	}
}

func place(path string, h *tar.Header, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return os.MkdirAll(path, 0o755)
	case tar.TypeSymlink:
		return os.Symlink(h.Linkname, path)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, h.FileInfo().Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, file)), into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
