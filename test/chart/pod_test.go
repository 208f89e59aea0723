package chart

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/test/testenv"
)

// A pod is headgate's container as a kubelet would start it: its arguments, its
// environment, its files and its probes, on addresses of the test's own.
type pod struct {
	container object
	root      string         // stands for / where ConfigMaps and Secrets are mounted
	settings  map[string]any // what settings.yaml says, with addresses of the test's own
	*testenv.Program
}

const settingsFile = "/etc/headgate/settings/settings.yaml"

// container returns headgate's container in rendered objects, wherever it is, and the
// volumes of its pod.
func container(t *testing.T, all []object) (c object, volumes []any) {
	t.Helper()
	for _, o := range all {
		switch o["kind"] {
		case "Deployment":
			spec := at(o, "spec", "template", "spec")
			return at(spec, "containers", 0).(object), at(spec, "volumes").([]any)
		case "ConfigMap":
			if text, ok := at(o, "data", "headgate").(string); ok { // the template for Istio's injector
				var template object
				if err := yaml.Unmarshal([]byte(text), &template); err != nil {
					t.Fatal(err)
				}
				return at(template, "spec", "initContainers", 0).(object), at(template, "spec", "volumes").([]any)
			}
		}
	}
	return nil, nil
}

// startPod starts the container with what the objects mount into it. Secrets have what
// secrets says, by the names of the variables; certs are for those of TLS.
func startPod(t *testing.T, all []object, c object, volumes []any, secrets map[string]string,
	certs *testenv.Certs) *pod {
	t.Helper()
	p, env := newPod(t, all, c, volumes, secrets, certs)
	p.Program = testenv.StartProgram(t, program, append(env, "HEADGATE_DRAIN_DELAY=0s"), p.place(asStrings(c["args"]))...)
	return p
}

// newPod is startPod that does not start the container, but returns its environment.
func newPod(t *testing.T, all []object, c object, volumes []any, secrets map[string]string,
	certs *testenv.Certs) (p *pod, env []string) {
	t.Helper()
	root, err := os.MkdirTemp("", "hg") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	p = &pod{container: c, root: root}
	p.mount(t, all, volumes, certs)
	p.moveAddresses(t)
	for _, e := range asList(c["env"]) {
		name := at(e, "name").(string)
		value, ok := at(e, "value").(string)
		if !ok {
			if value, ok = secrets[name]; !ok {
				t.Fatalf("the test has no secret for %s", name)
			}
		}
		env = append(env, name+"="+value)
	}
	return p, env
}

// place turns paths of the container into those of the test.
func (p *pod) place(args []string) []string {
	var placed []string
	for _, arg := range args {
		for _, dir := range []string{"/etc/headgate", "/run/headgate"} {
			arg = strings.ReplaceAll(arg, dir, p.root+dir)
		}
		placed = append(placed, arg)
	}
	return placed
}

// mount writes each volume to where the container has it, as a kubelet does.
func (p *pod) mount(t *testing.T, all []object, volumes []any, certs *testenv.Certs) {
	t.Helper()
	for _, m := range asList(p.container["volumeMounts"]) {
		dir := p.root + at(m, "mountPath").(string)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, v := range volumes {
			if at(v, "name") != at(m, "name") {
				continue
			}
			switch {
			case at(v, "configMap") != nil:
				name := at(v, "configMap", "name").(string)
				data, ok := configMap(all, name)
				if !ok && at(v, "configMap", "optional") != true {
					t.Fatalf("the chart renders no ConfigMap %s", name)
				}
				if !ok { // one that others keep
					data = map[string]string{name + ".yaml": othersRules(name)}
				}
				publish(t, dir, data)
			case at(v, "secret") != nil || at(v, "csi") != nil:
				publish(t, dir, map[string]string{"tls.crt": read(t, certs.Server.CertFile),
					"tls.key": read(t, certs.Server.KeyFile), "ca.crt": read(t, certs.CAFile)})
			}
		}
	}
}

// othersRules are the rules in a ConfigMap that the chart does not render.
func othersRules(name string) string {
	return "domain: " + name + "\ndescriptors: [{key: tenant, rate_limit: {unit: day, requests_per_unit: 2}}]\n"
}

func configMap(all []object, name string) (map[string]string, bool) {
	for _, o := range all {
		if o["kind"] == "ConfigMap" && at(o, "metadata", "name") == name {
			data := map[string]string{}
			for key, text := range at(o, "data").(object) {
				data[key] = text.(string)
			}
			return data, true
		}
	}
	return nil, false
}

// publish writes files as a kubelet does: into a directory of their own, which the link
// ..data then leads to, at once.
func publish(t *testing.T, dir string, data map[string]string) {
	t.Helper()
	generation, err := os.MkdirTemp(dir, "..2026_")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(generation, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range data {
		if err := os.WriteFile(filepath.Join(generation, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	old, _ := os.Readlink(filepath.Join(dir, "..data"))
	next := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(filepath.Base(generation), next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	for name := range data {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	if old != "" {
		if err := os.RemoveAll(filepath.Join(dir, old)); err != nil {
			t.Fatal(err)
		}
	}
}

// moveAddresses gives the listeners addresses of the test's own, and nothing else.
func (p *pod) moveAddresses(t *testing.T) {
	t.Helper()
	file := filepath.Join(p.root+filepath.Dir(settingsFile), "..data", filepath.Base(settingsFile))
	if err := yaml.Unmarshal([]byte(p.place([]string{read(t, file)})[0]), &p.settings); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"grpc", "services", "http", "admin", "metrics", "debug"} {
		address, _ := p.settings[name].(string)
		switch {
		case address == "":
		case strings.HasPrefix(address, "unix:@"):
			p.settings[name] = fmt.Sprintf("unix:@%s-%s", filepath.Base(p.root), name)
		case !strings.HasPrefix(address, "unix:"):
			p.settings[name] = fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t))
		}
	}
	text, err := yaml.Marshal(p.settings)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func (p *pod) address(setting string) string {
	address, _ := p.settings[setting].(string)
	return address
}

var probeAddress = regexp.MustCompile(`^(unix:.*|http://.*)$`)

// probe runs one of the container's probes.
func (p *pod) probe(t *testing.T, name string) (wrong string) {
	t.Helper()
	if path, ok := at(p.container, name, "httpGet", "path").(string); ok {
		if port := at(p.container, name, "httpGet", "port"); port != "http" {
			t.Errorf("%s asks the port %v", name, port)
		}
		code, err := get("http://" + p.address("http") + path)
		if err != nil || code != http.StatusOK {
			return fmt.Sprint(code, err)
		}
		return ""
	}
	command := asStrings(at(p.container, name, "exec", "command"))
	if len(command) == 0 || command[0] != "/headgate" {
		t.Fatalf("%s is %v", name, p.container[name])
	}
	for i, arg := range command {
		if probeAddress.MatchString(arg) {
			command[i] = p.address("grpc")
			if strings.HasPrefix(arg, "http") {
				command[i] = "http://" + p.address("http")
			}
		}
	}
	code, out, errOut := testenv.RunProgram(t, program, nil, command[1:]...)
	if code != 0 {
		return out + errOut
	}
	return ""
}

func get(url string) (int, error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func asList(v any) []any {
	l, _ := v.([]any)
	return l
}

func asStrings(v any) (all []string) {
	for _, e := range asList(v) {
		all = append(all, fmt.Sprint(e))
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
