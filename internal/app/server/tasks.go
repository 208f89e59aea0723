package server

import "sync"

// tasks are goroutines of the server, which it waits for.
type tasks struct{ wg sync.WaitGroup }

func (t *tasks) start(f func()) { t.wg.Go(f) }
func (t *tasks) wait()          { t.wg.Wait() }
