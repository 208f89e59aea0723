// Package insight keeps what a process has seen of requests, for operators: how many it answers, who is refused, why,
// and who is near a limit. All of it together takes less than 2 MiB. It is a sink of package ratelimit.
package insight
