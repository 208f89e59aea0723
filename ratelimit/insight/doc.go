// Package insight keeps what a process has seen of requests and rules, for operators who ask why something is not
// limited: which shapes of descriptors rules match, and what the last reloads changed. All of it is bounded.
package insight
