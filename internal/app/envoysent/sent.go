package envoysent

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/internal/kit/yamlfile"
)

// MaxFile bounds a configuration that [Missing] reads, in bytes.
const MaxFile = 16 << 20

// Missing says what the resources of the rules need that a configuration of Envoy does not send: in each list of
// actions that begins with method and path. file names the configuration in problems.
func Missing(set *descriptors.Set, file string, text []byte) (found []descriptors.Problem) {
	root, _, wrong := yamlfile.Decode(text)
	if wrong != nil {
		return []descriptors.Problem{{File: file, Line: wrong.Line, Message: wrong.Message}}
	}
	s := &sender{file: file}
	s.walk(root, 0)
	for _, domain := range s.domains {
		if !slices.Contains(set.Domains(), domain.Value) {
			s.problem(domain, "", fmt.Sprintf("Envoy asks about the domain %q, which the rules do not have%s",
				spell.Short(domain.Value), spell.DidYouMean(domain.Value, set.Domains())))
		}
	}
	for _, domain := range set.Domains() {
		if needs := set.Needs(domain); needs.Resources && (len(s.domains) == 0 || s.asksAbout(domain)) {
			s.compare(domain, &needs)
		}
	}
	return s.found
}

// A sender is what a configuration of Envoy sends.
type sender struct {
	file    string
	domains []*yaml.Node
	lists   []*yaml.Node // of actions
	found   []descriptors.Problem
}

func (s *sender) asksAbout(domain string) bool {
	return slices.ContainsFunc(s.domains, func(n *yaml.Node) bool { return n.Value == domain })
}

// maxDepth bounds how deep a configuration is read.
const maxDepth = 200

// walk finds domains and lists of actions. Aliases are not followed: what they stand for is found where it is.
func (s *sender) walk(n *yaml.Node, depth int) {
	if n == nil || depth > maxDepth {
		return
	}
	if actions := yamlfile.Value(n, "actions"); actions != nil && actions.Kind == yaml.SequenceNode {
		s.lists = append(s.lists, actions)
	}
	if domain := yamlfile.Value(n, "domain"); domain != nil && yamlfile.Value(n, "rate_limit_service") != nil {
		s.domains = append(s.domains, domain)
	}
	for _, below := range n.Content {
		s.walk(below, depth+1)
	}
}

// compare reports what the lists of actions for resources lack.
func (s *sender) compare(domain string, needs *descriptors.Needs) {
	asked := false
	for _, list := range s.lists {
		var keys []string
		for _, action := range list.Content {
			keys = append(keys, keyOf(action))
		}
		if len(keys) < 2 || keys[0] != "method" || keys[1] != "path" {
			continue
		}
		asked = true
		for _, name := range needed(needs) {
			i := slices.Index(keys, name)
			switch {
			case i < 0:
				s.problem(list, domain, "no action sends "+name+", so that requests count as if they had none; "+
					"`headgate envoy` prints the action")
			case dropsAll(list.Content[i]):
				s.problem(list.Content[i], domain, "the action for "+name+" has no skip_if_absent: true, so that Envoy "+
					"asks nothing about a request without it, which is then not limited")
			}
		}
	}
	if !asked {
		s.problem(&yaml.Node{}, domain, "no list of actions begins with method (:method) and path (:path), so that none of "+
			"the resources limits anything; `headgate envoy` prints the actions")
	}
}

func (s *sender) problem(n *yaml.Node, domain, message string) {
	s.found = append(s.found, descriptors.Problem{File: s.file, Line: n.Line, Col: n.Column, Path: domain,
		Message: message})
}

// needed returns the keys of all entries that resources look at.
func needed(needs *descriptors.Needs) (names []string) {
	for _, h := range needs.Headers {
		names = append(names, "header."+h)
	}
	names = append(names, needs.Entries...)
	if needs.SOAPAction {
		names = append(names, "soap_action")
	}
	return names
}

// keyOf returns the key of the entry that an action sends.
func keyOf(action *yaml.Node) string {
	if action.Kind != yaml.MappingNode || len(action.Content) < 2 {
		return ""
	}
	kind, body := action.Content[0].Value, action.Content[1]
	if in := yamlfile.Value(body, "typed_config"); in != nil {
		body = in
	}
	if key := yamlfile.Value(body, "descriptor_key"); key != nil {
		return key.Value
	}
	return kind // remote_address, generic_key and others are called like the action
}

// dropsAll reports whether an action without a value has Envoy leave out the whole descriptor.
func dropsAll(action *yaml.Node) bool {
	kind, body := action.Content[0].Value, action.Content[1]
	skip := yamlfile.Value(body, "skip_if_absent")
	skips := skip != nil && strings.EqualFold(skip.Value, "true")
	optional := skips || yamlfile.Value(body, "default_value") != nil
	return !optional && slices.Contains([]string{"request_headers", "metadata"}, kind)
}
