package xds

import (
	"errors"
	"fmt"

	"github.com/headgate-rls/headgate/internal/kit/protofields"
)

// Bounds of what a control plane may send, beside the size of a message. They are far
// above sensible rules. What is more is refused before it is decoded, because a decoded
// message takes up to a hundred times the memory of its bytes.
const (
	maxDomains  = 10_000  // resources in a message, and domains in force
	maxNodes    = 500_000 // descriptors, at all levels together
	maxDepth    = 256     // of descriptors
	maxName     = 1024    // bytes of a version or nonce
	maxMetadata = 64 << 10
	// maxPaths bounds the paths of all descriptors: each compiled rule has its own, with
	// the keys and values of all that are above it.
	maxPaths       = 64 << 20
	maxAllMetadata = 8 << 20
)

var errMalformed = errors.New("the message is not valid protobuf")

// A size is how much encoded RateLimitConfigs hold.
type size struct {
	nodes    int
	metadata int // bytes
	paths    int // bytes
}

func (s *size) add(o size) {
	s.nodes += o.nodes
	s.metadata += o.metadata
	s.paths += o.paths
}

func (s size) check() error {
	switch {
	case s.nodes > maxNodes:
		return fmt.Errorf("more than %d descriptors", maxNodes)
	case s.metadata > maxAllMetadata:
		return fmt.Errorf("more than %d MiB of metadata", maxAllMetadata>>20)
	case s.paths > maxPaths:
		return fmt.Errorf("keys and values are so long, and nested so deeply, that the paths of rules have more than %d MiB",
			maxPaths>>20)
	}
	return nil
}

// sizeOf counts what is in an encoded RateLimitConfig.
func sizeOf(config []byte) (s size, err error) {
	const descriptors = 3
	r := protofields.Of(config)
	for err == nil && r.Next() {
		if r.IsBytes(descriptors) {
			err = s.descriptor(r.Value, 1, 0)
		}
	}
	if err == nil && r.Malformed {
		err = errMalformed
	}
	return s, err
}

// descriptor counts a descriptor at a depth, above which the path has so many bytes.
func (s *size) descriptor(b []byte, depth, path int) error {
	const policy, descriptors, metadata = 3, 4, 8
	if depth > maxDepth {
		return fmt.Errorf("descriptors are nested deeper than %d", maxDepth)
	}
	key, value, _ := protofields.Entry(b)
	path += len(key) + len(value) + len("._")
	s.nodes++
	s.paths += path
	r := protofields.Of(b)
	own := 0 // bytes of metadata: a field that is given twice is merged
	for r.Next() {
		var err error
		switch {
		case r.IsBytes(policy):
			err = s.policy(r.Value)
		case r.IsBytes(descriptors):
			err = s.descriptor(r.Value, depth+1, path)
		case r.IsBytes(metadata):
			own += len(r.Value)
		}
		if err != nil {
			return err
		}
	}
	if r.Malformed {
		return errMalformed
	}
	s.metadata += own
	if own > maxMetadata {
		return fmt.Errorf("the metadata of a descriptor has more than %d KiB", maxMetadata>>10)
	}
	return s.check()
}

// policy counts the names of the limits that a limit replaces like descriptors: they are
// messages, too.
func (s *size) policy(b []byte) error {
	const replaces = 5
	r := protofields.Of(b)
	for r.Next() {
		if r.IsBytes(replaces) {
			s.nodes++
		}
	}
	if r.Malformed {
		return errMalformed
	}
	return s.check()
}
