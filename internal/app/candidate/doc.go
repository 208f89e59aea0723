// Package candidate decides live requests a second time, by rules on trial with counters of their own, and counts where
// the answers differ. It sees requests before their answers leave, copies them into a bounded queue, and decides later:
// no answer waits for it, and none is changed by it.
package candidate
