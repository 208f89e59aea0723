// Command manifests checks rendered Kubernetes manifests without a cluster.
//
//	manifests check FILE…      decodes every object strictly into its Go type, and evaluates the
//	                           pods by the Pod Security Standard "restricted"
//	manifests kustomize DIR    prints what `kubectl kustomize DIR` prints
//	manifests notes CHART RELEASE NAMESPACE VALUES
//	                           prints what helm prints after an installation
//	manifests schemas DIR SWAGGER CRDS…
//	                           writes JSON schemas for kubeconform, from the OpenAPI document of
//	                           Kubernetes and files with CustomResourceDefinitions
//
// It prints one line for each thing that is wrong, and then exits with 1.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "version":
		fmt.Println("manifests", versions())
		return nil
	case len(args) >= 2 && args[0] == "check":
		return check(args[1:])
	case len(args) == 2 && args[0] == "kustomize":
		return kustomize(args[1])
	case len(args) == 5 && args[0] == "notes":
		return notes(args[1], args[2], args[3], args[4])
	case len(args) >= 3 && args[0] == "schemas":
		return writeSchemas(args[1], args[2], args[3:])
	}
	return errors.New("usage: manifests check FILE… | kustomize DIR | notes CHART RELEASE NAMESPACE VALUES | schemas " +
		"DIR SWAGGER CRDS… | version")
}

func kustomize(dir string) error {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return err
	}
	text, err := built.AsYaml()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

func check(files []string) error {
	wrong, objects := 0, 0
	for _, file := range files {
		err := documents(file, func(document []byte) error {
			objects++
			wrong += report(file, checkObject(document)...)
			return nil
		})
		if err != nil {
			wrong += report(file, err)
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d things are wrong", wrong)
	}
	fmt.Printf("%d objects are in order\n", objects)
	return nil
}

// documents calls do for each document of a file, as JSON, until one is wrong.
func documents(file string, do func([]byte) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	r := yaml.NewYAMLReader(bufio.NewReader(f))
	for {
		document, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		data, err := yaml.ToJSON(document)
		if err == nil && string(data) != "null" {
			err = do(data)
		}
		if err != nil {
			return err
		}
	}
}

// report prints what is wrong and returns how much.
func report(file string, errs ...error) (n int) {
	for _, err := range errs {
		if err != nil {
			fmt.Printf("%s: %v\n", file, err)
			n++
		}
	}
	return n
}
