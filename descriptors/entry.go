package descriptors

import (
	"sync"
)

// An Entry is one key and value of a descriptor.
type Entry struct{ Key, Value string }

var groupBuffers = sync.Pool{New: func() any { return new([]byte) }}

// maxPooledGroup keeps one huge descriptor from pinning its buffer.
const maxPooledGroup = 256 << 10
