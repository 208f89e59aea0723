// Package rulefile reads rules from YAML.
//
// The language is that of github.com/envoyproxy/ratelimit, which loads unchanged, and a strict superset of it:
// docs/rules.md has it in full and docs/compatibility.md the differences. [Load] reads sources into a descriptors.Spec,
// builds a set of rules from it, and reports every problem with its place.
//
// # To change it
//
//   - the rule language: node.go, limits.go, rules.schema.json, descriptors/spec.go, docs/rules.md and
//     docs/resources.md; go test ./descriptors/rulefile
//   - which files that others write are read: generated.go, manifest.go; go test ./descriptors/rulefile
//     ./descriptors/files
//   - how rules by method and path, and tiers, are read: resources.go, matcher.go and tiers.go; go test
//     ./descriptors/... -run 'Resource|Precedence|Spelling|Tier'
//   - how they match: descriptors/pathclass.go, descriptors/criteria.go and descriptors/resourceindex.go; go test
//     ./descriptors/... -run 'Resource|Precedence|Spelling|Tier'
//
// # More
//
// The files in layers, from below: node.go and loader.go read YAML and report problems; calendar.go, limits.go,
// reserve.go, answer.go, tiers.go, networks.go and matcher.go read the parts of a rule; rules.go and resources.go read
// rules; load.go, generated.go and overlay.go read files, and manifest.go finds those that a ConfigMap of Kubernetes
// has.
package rulefile
