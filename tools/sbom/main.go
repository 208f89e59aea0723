// Command sbom prints the software bill of materials of programs, in CycloneDX 1.6: every module in them, the version
// of Go, and what the linker was told, as the programs themselves say.
//
//	sbom NAME VERSION TIME PROGRAM…    NAME is what the programs are released as. TIME is in seconds since 1970.
//
// The same arguments print the same bytes.
package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string, w io.Writer) error {
	if len(args) < 4 {
		return errors.New("usage: sbom NAME VERSION TIME PROGRAM…")
	}
	seconds, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	bom := cdx.NewBOM()
	whole := cdx.Component{Type: cdx.ComponentTypeApplication, Name: args[0], Version: args[1], BOMRef: args[0]}
	bom.Metadata = &cdx.Metadata{Timestamp: time.Unix(seconds, 0).UTC().Format(time.RFC3339), Component: &whole}
	modules, facts := map[string]cdx.Component{}, []cdx.Property{}
	for _, program := range args[3:] {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return err
		}
		whole.PackageURL = packageURL(info.Main.Path, args[1])
		facts = append(facts, settings(filepath.Base(program), info)...)
		add := func(c cdx.Component) { modules[c.BOMRef] = c }
		add(component("std", strings.TrimPrefix(info.GoVersion, "go"), ""))
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			add(component(m.Path, m.Version, m.Sum))
		}
	}
	whole.Properties = &facts
	all, refs := []cdx.Component{}, []string{}
	for _, c := range modules {
		all, refs = append(all, c), append(refs, c.BOMRef)
	}
	slices.SortFunc(all, func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	slices.Sort(refs)
	bom.Components, bom.Dependencies = &all, &[]cdx.Dependency{{Ref: whole.BOMRef, Dependencies: &refs}}
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).Encode(bom)
}

// settings are how a program was built.
func settings(program string, info *debug.BuildInfo) (facts []cdx.Property) {
	for _, s := range info.Settings {
		facts = append(facts, cdx.Property{Name: "go:" + program + ":" + s.Key, Value: s.Value})
	}
	return facts
}

// component is a module. sum is what go.sum has of it: a SHA-256 over its files.
func component(path, version, sum string) cdx.Component {
	ref := packageURL(path, version)
	c := cdx.Component{Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: ref, BOMRef: ref}
	if text, ok := strings.CutPrefix(sum, "h1:"); ok {
		if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
			c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(raw)}}
		}
	}
	return c
}

func packageURL(path, version string) string {
	return "pkg:golang/" + path + "@" + url.QueryEscape(version)
}
