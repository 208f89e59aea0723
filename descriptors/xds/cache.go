package xds

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/headgate-rls/headgate/internal/kit/protofields"
	"github.com/headgate-rls/headgate/limit"
)

// cacheHead begins the file that keeps the last good rules; the SHA-256 of the rest and
// a line break follow it, and then an encoded DiscoveryResponse.
const cacheHead = "headgate xds cache 1\n"

// isLater reports whether the first line of a file is that of a later version.
func isLater(content []byte) bool {
	var n int
	_, err := fmt.Sscanf(string(content[:min(len(content), 40)]), "headgate xds cache %d\n", &n)
	return err == nil && n > 1
}

// encodeCache returns the content of the file for what is in force. The names of domains
// are in order, so that equal rules are equal bytes.
func encodeCache(node, accepted string, domains map[string]*version) ([]byte, error) {
	resp := &discovery.DiscoveryResponse{VersionInfo: accepted, TypeUrl: typeURLOfRules,
		ControlPlane: &core.ControlPlane{Identifier: node}}
	for _, name := range slices.Sorted(maps.Keys(domains)) {
		for _, raw := range domains[name].raw {
			resp.Resources = append(resp.Resources, &anypb.Any{TypeUrl: typeURLOfRules, Value: raw})
		}
	}
	body, err := proto.Marshal(resp)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	return slices.Concat([]byte(cacheHead), []byte(hex.EncodeToString(sum[:])), []byte("\n"), body), nil
}

// writeCache replaces the file in one step: a reader finds the old rules or the new ones.
func writeCache(path string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // the error says more
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// readCache returns what the file keeps for this node. A file that is not there is no
// error: the response is nil then.
func readCache(path, node string, most int) (*response, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	head := len(cacheHead) + 2*sha256.Size + 1
	content, err := io.ReadAll(io.LimitReader(f, int64(most)+int64(head)+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	switch {
	case isLater(content):
		return nil, limit.ErrLater
	case len(content) > most+head:
		return nil, fmt.Errorf("larger than %d bytes", most+head)
	case !bytes.HasPrefix(content, []byte(cacheHead)) || len(content) < head:
		return nil, errors.New("not a file of headgate's with rules")
	}
	body := content[head:]
	sum := sha256.Sum256(body)
	if hex.EncodeToString(sum[:]) != string(content[len(cacheHead):head-1]) {
		return nil, errors.New("damaged: its checksum is wrong")
	}
	resp, err := parse(body)
	if err != nil {
		return nil, err
	}
	const controlPlane, identifier = 6, 1
	plane, _ := protofields.Bytes(body, controlPlane)
	if of, _ := protofields.Bytes(plane, identifier); string(of) != node {
		return nil, fmt.Errorf("it is of the node %.100q and not of %q", of, node)
	}
	return resp, nil
}
