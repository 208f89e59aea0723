//go:build !rlsonly

package server

import "net/http/pprof"

// profilePages are those of package net/http/pprof, but for the command line.
var profilePages = []debugPage{
	{"/debug/pprof/", "profiles of the process, and a list of them", pprof.Index},
	{"/debug/pprof/profile", "a profile of the CPU", withoutTurn(pprof.Profile)},
	{"/debug/pprof/symbol", "names of addresses in profiles", pprof.Symbol},
	{"/debug/pprof/trace", "a trace of the runtime", withoutTurn(pprof.Trace)},
}
