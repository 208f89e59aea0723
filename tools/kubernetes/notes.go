package main

import (
	"fmt"
	"path"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

// notes prints what helm prints after an installation. helm itself wants a cluster for it.
func notes(dir, release, namespace, valuesFile string) error {
	chart, err := loader.Load(dir)
	if err != nil {
		return err
	}
	values, err := chartutil.ReadValuesFile(valuesFile)
	if err != nil {
		return err
	}
	options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, IsInstall: true, Revision: 1}
	all, err := chartutil.ToRenderValues(chart, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return err
	}
	rendered, err := engine.Render(chart, all)
	if err != nil {
		return err
	}
	fmt.Print(rendered[path.Join(chart.Name(), "templates", "NOTES.txt")])
	return nil
}
