// Command image makes a container image of a program that is built for several architectures. It needs no engine. The
// image is what the Dockerfile makes: its root, its user, its ports, its labels.
//
//	image write DIR VERSION REVISION TIME CERTIFICATES ARCH=PROGRAM…
//	                     writes an OCI layout to DIR. TIME is in seconds since 1970, CERTIFICATES
//	                     a file of the authorities that are trusted
//	image push DIR NAME  pushes the layout to a registry as NAME, with the login of docker
//
// The same arguments make the same bytes.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) >= 7 && args[0] == "write":
		seconds, err := strconv.ParseInt(args[4], 10, 64)
		if err != nil {
			return err
		}
		r := release{version: args[2], revision: args[3], time: time.Unix(seconds, 0).UTC(), certificates: args[5]}
		return r.write(args[1], args[6:])
	case len(args) == 3 && args[0] == "push":
		return push(args[1], args[2])
	}
	return errors.New("usage: image write DIR VERSION REVISION TIME CERTIFICATES ARCH=PROGRAM… | push DIR NAME")
}

// A release is what its images have in common.
type release struct {
	version, revision string
	time              time.Time
	certificates      string
}

func (r release) write(dir string, programs []string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range programs {
		arch, program, ok := strings.Cut(p, "=")
		if !ok {
			return fmt.Errorf("%s is not ARCH=PROGRAM", p)
		}
		image, err := r.image(arch, program)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	all, ok := mutate.Annotations(index, r.labels()).(v1.ImageIndex)
	if !ok {
		return errors.New("an index with annotations is none")
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return path.AppendIndex(all, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version}))
}

// image is the last stage of the Dockerfile.
func (r release) image(arch, program string) (v1.Image, error) {
	root, err := r.root(program)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(root)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: r.time}
	config.Config = v1.Config{
		User:         "65532:65532",
		Entrypoint:   []string{"/headgate"},
		Cmd:          []string{"serve"},
		ExposedPorts: map[string]struct{}{"8081/tcp": {}, "8080/tcp": {}, "6070/tcp": {}, "8082/tcp": {}},
		Labels:       r.labels(),
	}
	return mutate.ConfigFile(image, config)
}

func (r release) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "headgate",
		"org.opencontainers.image.description": "An external rate-limit service for Envoy and Istio",
		"org.opencontainers.image.source":      "https://github.com/headgate-rls/headgate",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     r.version,
		"org.opencontainers.image.revision":    r.revision,
	}
}

// root is the tree of the image, as tar.
func (r release) root(program string) ([]byte, error) {
	const certificates = "etc/ssl/certs/ca-certificates.crt"
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, content []byte) error {
		h.ModTime, h.Size, h.Format = r.time, int64(len(content)), tar.FormatUSTAR
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	for _, dir := range []string{"bin/", "etc/", "etc/ssl/", "etc/ssl/certs/"} {
		if err := add(tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}, nil); err != nil {
			return nil, err
		}
	}
	for _, f := range []struct {
		name, from string
		mode       int64
	}{{certificates, r.certificates, 0o644}, {"headgate", program, 0o755}} {
		content, err := os.ReadFile(f.from)
		if err != nil {
			return nil, err
		}
		if err := add(tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode}, content); err != nil {
			return nil, err
		}
	}
	for _, link := range []string{"bin/headgate", "bin/ratelimit", "bin/ratelimit_client", "bin/ratelimit_config_check"} {
		if err := add(tar.Header{Typeflag: tar.TypeSymlink, Name: link, Linkname: "/headgate", Mode: 0o777},
			nil); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

func push(dir, to string) error {
	ref, err := name.ParseReference(to)
	if err != nil {
		return err
	}
	path, err := layout.FromPath(dir)
	if err != nil {
		return err
	}
	top, err := path.ImageIndex()
	if err != nil {
		return err
	}
	list, err := top.IndexManifest()
	if err != nil {
		return err
	}
	if len(list.Manifests) != 1 {
		return fmt.Errorf("%s has %d images, want one for several architectures", dir, len(list.Manifests))
	}
	index, err := top.ImageIndex(list.Manifests[0].Digest)
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(ref, index, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return err
	}
	fmt.Printf("%s@%s\n", ref.Context(), list.Manifests[0].Digest)
	return nil
}
