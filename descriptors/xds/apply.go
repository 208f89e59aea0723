package xds

import (
	"maps"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/overlay"
)

// open reads the resources of a response. Bad ones are of no known domain.
func (c *Client) open(resp *response) (list []resource, bad []descriptors.Problem) {
	for _, encoded := range resp.resources {
		r, err := open(encoded)
		switch {
		case err == nil:
			list = append(list, r)
		case len(bad) < maxBad:
			bad = append(bad, descriptors.Problem{File: source, Path: r.domain, Message: err.Error()})
		}
	}
	return list, bad
}

// maxBad bounds the problems with resources of which no domain is known.
const maxBad = 100

// install puts an outcome in force, and reports whether it is.
func (c *Client) install(o *outcome) bool {
	if o.set == nil {
		return false
	}
	if err := c.opt.Install(o.set); err != nil {
		o.reject("%v", err)
		return false
	}
	c.state.take(o)
	c.now.Changed = time.Now()
	if !c.now.Rules {
		c.now.Rules = true
		close(c.first)
	}
	return true
}

// note keeps what is wrong for those who ask.
func (c *Client) note(o *outcome) {
	c.now.Rejected, c.now.Wrong, c.now.Problems = o.rejected, len(o.problems), nil
	for _, p := range shown(o.problems) {
		c.now.Problems = append(c.now.Problems, cut(p.String(), 1000))
	}
}

// report logs what came of a response.
func (c *Client) report(o *outcome, resp *response, same bool, took time.Duration) {
	rules := 0
	if o.set != nil {
		rules = len(o.set.Rules())
	}
	domains, kept := len(c.state.inForce), shown(o.missing)
	switch {
	case len(o.problems) > 0:
		c.opt.Log.Error("rejected rules from the control plane; the affected domains keep their old rules",
			"version", resp.version, "rejected", shown(slices.Sorted(maps.Keys(o.rejected))), "problems", len(o.problems),
			"domains", domains, "kept", kept)
	case same:
		c.opt.Log.Debug("the control plane sent unchanged rules", "version", resp.version, "domains", domains, "kept", kept)
	default:
		c.opt.Log.Info("applied rules from the control plane",
			"version", resp.version, "domains", domains, "rules", rules, "kept", kept, "took", took.Round(time.Microsecond))
	}
	if !same || len(o.problems) > 0 {
		c.details(o)
	}
}

// log logs what came of rules that are not from the control plane now.
func (c *Client) log(o *outcome, what string) {
	if o.set == nil {
		c.opt.Log.Error("could not apply rules; the old ones stay in force", "what", what, "problems", len(o.problems))
	} else {
		c.opt.Log.Info("rules are in force", "what", what, "domains", len(o.domains), "rules", len(o.set.Rules()), "problems",
			len(o.problems))
	}
	c.details(o)
}

// details logs the first problems and warnings.
func (c *Client) details(o *outcome) {
	for _, p := range shown(o.problems) {
		c.opt.Log.Error("rejected rules", "problem", cut(p.String(), 1000))
	}
	for _, p := range shown(o.warnings) {
		c.opt.Log.Warn("warning about the rules", "warning", cut(p.String(), 1000))
	}
}

func shown[T any](list []T) []T { return list[:min(len(list), mostShown)] }

// relay lays another overlay over the rules in force.
func (c *Client) relay(l *overlay.Overlay) {
	o := c.state.relay(l, true)
	if !c.now.Rules {
		return // it is laid over the first rules
	}
	c.install(o)
	c.log(o, "rules under the new overlay")
	c.publish()
}

// remove drops the domains that the control plane does not send any more.
func (c *Client) remove() {
	if len(c.state.missing) == 0 || c.unsure {
		return
	}
	gone := c.state.missing
	o := c.state.relay(c.state.overlay, false)
	if c.install(o) {
		c.opt.Log.Info("removed domains that the control plane no longer sends", "removed", shown(gone), "domains",
			len(c.state.inForce))
		c.keep()
	} else {
		c.log(o, "rules without the domains that are not sent any more")
	}
	c.publish()
}

// keep writes what is in force to the cache file.
func (c *Client) keep() {
	if c.opt.Cache == "" || c.cached == nil {
		return
	}
	content, err := encodeCache(c.opt.NodeID, c.now.Version, c.state.inForce)
	if err != nil {
		c.opt.Log.Error("could not write the file of last known rules", "file", c.opt.Cache, "error", err)
		return
	}
	c.cached.put(content)
}
