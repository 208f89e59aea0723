package testenv

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const kubeStartLimit = 90 * time.Second

// Kubernetes is a running API server on an etcd of its own. There are no nodes and no
// controllers: it validates, admits and keeps objects, and nothing runs.
type Kubernetes struct {
	URL        string
	Kubeconfig string // a file for clients, which may do everything
	Version    string

	tb     TB
	client *http.Client
}

const kubeToken = "administrator-of-this-test"

// StartKubernetes runs etcd and the API server, and waits until it is ready.
func StartKubernetes(tb TB) *Kubernetes {
	tb.Helper()
	apiserver, etcd := Require(tb, KubeAPIServer), Require(tb, Etcd)
	dir := tb.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			tb.Fatalf("testenv: %v", err)
		}
		return path
	}
	clients, peers := fmt.Sprintf("http://127.0.0.1:%d", FreePort(tb)), fmt.Sprintf("http://127.0.0.1:%d", FreePort(tb))
	store := StartProgram(tb, etcd, nil, "--data-dir", filepath.Join(dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	signer := file("signer.pem",
		string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	port := FreePort(tb)
	server := StartProgram(tb, apiserver, nil, "--etcd-servers", clients, "--bind-address", "127.0.0.1",
		"--advertise-address", "127.0.0.1",
		"--secure-port", fmt.Sprint(port), "--cert-dir", filepath.Join(dir, "certs"),
		"--service-account-issuer", "https://localhost", "--service-account-key-file", signer,
		"--service-account-signing-key-file", signer,
		"--token-auth-file", file("tokens.csv", kubeToken+`,admin,1,"system:masters"`+"\n"), "--authorization-mode", "RBAC",
		// Without controllers nobody makes the account "default" of a namespace.
		"--disable-admission-plugins", "ServiceAccount", "--service-cluster-ip-range", "10.0.0.0/24",
		"--endpoint-reconciler-type", "none")
	k := &Kubernetes{URL: fmt.Sprintf("https://127.0.0.1:%d", port), tb: tb, client: &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, // its certificate is its own
	}}
	k.Kubeconfig = file("kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "%s", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: %s}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
current-context: test
`, k.URL, kubeToken))
	err = waitFor(kubeStartLimit, "start the API server of Kubernetes", func() (bool, string, error) {
		if server.Exited() || store.Exited() {
			return false, "", fmt.Errorf("it, or etcd, ended by itself")
		}
		code, body, err := k.call(http.MethodGet, "/readyz", nil)
		return err == nil && code == http.StatusOK, fmt.Sprint(body, err), nil
	})
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	var version struct{ GitVersion string }
	k.Get("/version", &version)
	k.Version = version.GitVersion
	ran(tb, KubeAPIServer, k.Version)
	ran(tb, Etcd, "of the system")
	return k
}

// call sends object, unless it is nil, as JSON. The error says that there was no answer.
func (k *Kubernetes) call(method, path string, object any) (code int, body string, err error) {
	var content io.Reader
	if object != nil {
		data, err := json.Marshal(object)
		if err != nil {
			return 0, "", err
		}
		content = bytes.NewReader(data)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, k.URL+path, content)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+kubeToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := k.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 32<<20))
	return resp.StatusCode, string(data), err
}

// Get reads what a path has into a variable, and fails the test if the path has none.
func (k *Kubernetes) Get(path string, into any) {
	k.tb.Helper()
	code, body, err := k.call(http.MethodGet, path, nil)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%d: %s", code, body)
	}
	if err == nil {
		err = json.Unmarshal([]byte(body), into)
	}
	if err != nil {
		k.tb.Fatalf("testenv: Kubernetes: get %s: %v", path, err)
	}
}

// Create makes an object in the collection that path names, and returns what the API server
// made of it, or what is wrong with it. It takes no unknown fields.
func (k *Kubernetes) Create(path string, object any) (made map[string]any, wrong string) {
	k.tb.Helper()
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	code, body, err := k.call(http.MethodPost, path+separator+"fieldValidation=Strict", object)
	if err != nil {
		k.tb.Fatalf("testenv: Kubernetes: create at %s: %v", path, err)
	}
	if code != http.StatusCreated {
		return nil, fmt.Sprintf("%d: %s", code, body)
	}
	if err := json.Unmarshal([]byte(body), &made); err != nil {
		k.tb.Fatalf("testenv: Kubernetes: create at %s: %v", path, err)
	}
	return made, ""
}
