package main

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// TestPushBringsEveryArchitecture: a registry has, for each architecture, the image with
// its own program, by tag.
func TestPushBringsEveryArchitecture(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	dir := t.TempDir()
	for _, file := range []string{"amd64", "arm64", "certificates"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte("this is "+file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "image")
	err := run([]string{"write", out, "v1.2.3", "abc", "1767312000", filepath.Join(dir, "certificates"),
		"amd64=" + filepath.Join(dir, "amd64"), "arm64=" + filepath.Join(dir, "arm64")})
	if err != nil {
		t.Fatal(err)
	}
	to := strings.TrimPrefix(server.URL, "http://") + "/headgate-rls/headgate:v1.2.3"
	if err := run([]string{"push", out, to}); err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(to)
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		image, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil || config.Architecture != arch || config.Created.Unix() != 1767312000 {
			t.Errorf("%s: %+v, %v", arch, config, err)
		}
		layers, err := image.Layers()
		if err != nil || len(layers) != 1 {
			t.Fatalf("%d layers: %v", len(layers), err)
		}
		r, err := layers[0].Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		if root, err := io.ReadAll(r); err != nil || !strings.Contains(string(root), "this is "+arch) {
			t.Errorf("%s: the layer has another program: %v", arch, err)
		}
	}
}
