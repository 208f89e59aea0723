package xds

import "time"

// A cacheWriter writes the cache file in a goroutine of its own: a file system that does
// not answer must keep neither rules nor their acknowledgment waiting.
type cacheWriter struct {
	next chan []byte // what is to be written; later contents replace earlier ones
	done chan struct{}
}

// lastWrite bounds how long the end waits for the file.
const lastWrite = 2 * time.Second

func newCacheWriter(o *Options) *cacheWriter {
	if o.Cache == "" {
		return nil
	}
	w := &cacheWriter{next: make(chan []byte, 1), done: make(chan struct{})}
	o.Panics.Go("xds", func() {
		defer close(w.done)
		for content := range w.next {
			if err := writeCache(o.Cache, content); err != nil {
				o.Log.Error("could not write the file of last known rules; the old file stays", "file", o.Cache, "error", err)
			}
		}
	})
	return w
}

// put has content written, instead of what has not been written yet.
func (w *cacheWriter) put(content []byte) {
	select {
	case <-w.next:
	default:
	}
	select {
	case w.next <- content:
	case <-w.done: // it has panicked
	}
}

// close waits until the last content is written, but not for ever.
func (w *cacheWriter) close() {
	if w == nil {
		return
	}
	close(w.next)
	select {
	case <-w.done:
	case <-time.After(lastWrite):
	}
}
