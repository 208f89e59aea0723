// Package insight keeps what a process has seen of requests and rules, for operators who ask why something is not
// limited: which shapes of descriptors rules match, what the last reloads changed; and who is
// refused, why, and who is near a limit. All of it together takes less than 2 MiB.
package insight
