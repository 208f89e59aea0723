package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// A node is a part of a JSON schema.
type node = map[string]any

// writeSchemas writes a JSON schema for each kind to dir, under the name that kubeconform looks
// for. Fields that a schema does not name are wrong. swagger is the OpenAPI document of
// Kubernetes, crds are files with CustomResourceDefinitions.
func writeSchemas(dir, swagger string, crds []string) error {
	text, err := os.ReadFile(swagger)
	if err != nil {
		return err
	}
	var api struct{ Definitions map[string]node }
	if err := json.Unmarshal(text, &api); err != nil {
		return fmt.Errorf("%s: %w", swagger, err)
	}
	for name, d := range api.Definitions {
		switch name {
		case "io.k8s.apimachinery.pkg.api.resource.Quantity", "io.k8s.apimachinery.pkg.util.intstr.IntOrString":
			d["type"] = []string{"string", "number"} // the document says string
		default:
			closeObjects(d)
		}
	}
	kinds := 0
	for name, d := range api.Definitions {
		list, _ := d["x-kubernetes-group-version-kind"].([]any)
		for _, g := range list {
			g := g.(node)
			schema := node{"$ref": "#/definitions/" + name, "definitions": closure(api.Definitions, name)}
			if err := saveSchema(dir, g["group"].(string), g["version"].(string), g["kind"].(string), schema); err != nil {
				return err
			}
			kinds++
		}
	}
	for _, file := range crds {
		n, err := customSchemas(dir, file, api.Definitions)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		kinds += n
	}
	fmt.Println(kinds, "schemas")
	return nil
}

// customSchemas writes the schemas of a file with CustomResourceDefinitions, and returns how many.
func customSchemas(dir, file string, definitions map[string]node) (kinds int, err error) {
	const metadata = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
	err = documents(file, func(document []byte) error {
		var crd struct {
			Kind string
			Spec struct {
				Group    string
				Names    struct{ Kind string }
				Versions []struct {
					Name   string
					Schema struct{ OpenAPIV3Schema node }
				}
			}
		}
		if err := json.Unmarshal(document, &crd); err != nil || crd.Kind != "CustomResourceDefinition" {
			return err
		}
		for _, v := range crd.Spec.Versions {
			schema := v.Schema.OpenAPIV3Schema
			properties, ok := schema["properties"].(node)
			if !ok {
				return fmt.Errorf("%s has no properties", crd.Spec.Names.Kind)
			}
			maps.Copy(properties, node{"apiVersion": node{"type": "string"}, "kind": node{"type": "string"}})
			closeObjects(schema)
			properties["metadata"] = node{"$ref": "#/definitions/" + metadata}
			schema["definitions"] = closure(definitions, metadata)
			if err := saveSchema(dir, crd.Spec.Group, v.Name, crd.Spec.Names.Kind, schema); err != nil {
				return err
			}
			kinds++
		}
		return nil
	})
	if err == nil && kinds == 0 {
		err = fmt.Errorf("has no CustomResourceDefinition")
	}
	return kinds, err
}

func saveSchema(dir, group, version, kind string, schema node) error {
	name := strings.ToLower(kind)
	if group, _, _ := strings.Cut(group, "."); group != "" {
		name += "-" + group
	}
	text, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+"-"+version+".json"), text, 0o644)
}

// closeObjects makes the fields that a schema does not name wrong, and lets a field be null
// where the schema says so. Alternatives name a part of the fields only: they stay as they are.
func closeObjects(schema node) {
	if properties, ok := schema["properties"].(node); ok {
		if schema["additionalProperties"] == nil && schema["x-kubernetes-preserve-unknown-fields"] != true {
			schema["additionalProperties"] = false
		}
		for _, p := range properties {
			closeObjects(p.(node))
		}
	}
	for _, below := range []string{"items", "additionalProperties"} {
		if s, ok := schema[below].(node); ok {
			closeObjects(s)
		}
	}
	if t, ok := schema["type"].(string); ok && schema["nullable"] == true {
		schema["type"] = []string{t, "null"}
	}
}

// closure returns a definition and all that it refers to.
func closure(definitions map[string]node, name string) map[string]node {
	const prefix = `"$ref":"#/definitions/`
	found := map[string]node{}
	for todo := []string{name}; len(todo) > 0; {
		name, todo = todo[0], todo[1:]
		if found[name] != nil {
			continue
		}
		found[name] = definitions[name]
		text, err := json.Marshal(definitions[name])
		if err != nil {
			panic(err) // it was JSON
		}
		for _, part := range bytes.Split(text, []byte(prefix))[1:] {
			ref, _, _ := bytes.Cut(part, []byte(`"`))
			todo = append(todo, string(ref))
		}
	}
	return found
}
