package main

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "draw the picture again")

// TestPictureOfTheOverview: the picture that README.md shows is the first table of docs/performance.md, and is well
// formed.
func TestPictureOfTheOverview(t *testing.T) {
	const file = "../../docs/images/performance.svg"
	page, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := overviewPicture(string(page))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, []byte(drawn), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if kept, err := os.ReadFile(file); err != nil || string(kept) != drawn {
		t.Errorf("%s (%v) is not the first table of docs/performance.md: run go test ./test/bench -run Picture -update",
			file, err)
	}
	for d := xml.NewDecoder(strings.NewReader(drawn)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range overviewCases {
		if !strings.Contains(drawn, strings.ReplaceAll(c.name, "`", "")) {
			t.Errorf("the picture lacks %s", c.name)
		}
	}
}
