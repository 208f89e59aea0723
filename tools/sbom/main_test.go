package main

import (
	"bytes"
	"os"
	"slices"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// TestBillOfTheTestItself: the bill of this test's own program has the library, its version and its sum, and Go; it
// depends on all that is in it; a second one has the same bytes.
func TestBillOfTheTestItself(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var one, two bytes.Buffer
	for _, w := range []*bytes.Buffer{&one, &two} {
		if err := run([]string{"x", "v1.2.3", "1767312000", program, program}, w); err != nil {
			t.Fatal(err)
		}
	}
	if one.String() != two.String() {
		t.Error("a second bill differs")
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(&one, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	named := func(name string) (c cdx.Component) {
		i := slices.IndexFunc(*bom.Components, func(c cdx.Component) bool { return c.Name == name })
		if i >= 0 {
			c = (*bom.Components)[i]
		}
		return c
	}
	library := named("github.com/CycloneDX/cyclonedx-go")
	if library.PackageURL != "pkg:golang/github.com/CycloneDX/cyclonedx-go@"+library.Version || library.Version == "" ||
		library.Hashes == nil || len((*library.Hashes)[0].Value) != 64 {
		t.Errorf("the library: %+v", library)
	}
	if named("std").Version == "" || bom.Metadata.Component.Version != "v1.2.3" ||
		bom.Metadata.Timestamp != "2026-01-02T00:00:00Z" {
		t.Errorf("Go: %+v, the whole: %+v", named("std"), bom.Metadata)
	}
	if refs := (*bom.Dependencies)[0].Dependencies; len(*refs) != len(*bom.Components) || len(*refs) < 2 {
		t.Errorf("the whole depends on %d of %d components", len(*refs), len(*bom.Components))
	}
	if err := run([]string{"x", "v1", "0", "main.go"}, &two); err == nil {
		t.Error("a file that is no program has a bill")
	}
}

func TestPackageURLsAreEscaped(t *testing.T) {
	if got := packageURL("a.b/c", "v1.0.0+incompatible"); got != "pkg:golang/a.b/c@v1.0.0%2Bincompatible" {
		t.Error(got)
	}
}
