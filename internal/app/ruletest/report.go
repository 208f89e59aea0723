package ruletest

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/spell"
)

// WriteText writes results for people.
func WriteText(out io.Writer, results []Result) error {
	for _, r := range results {
		steps, requests := 0, 0
		for _, t := range r.Tests {
			steps, requests = steps+t.Steps, requests+t.Requests
		}
		word := "ok  "
		if !r.OK {
			word = "FAIL"
		}
		fmt.Fprintf(out, "%s %s: %s, %s, %s\n", word, r.File, spell.Count(len(r.Tests), "test"), spell.Count(steps, "step"),
			spell.Count(requests, "request"))
		for _, t := range r.Tests {
			for i, f := range t.Failures {
				if i == 0 {
					fmt.Fprintf(out, "  %s\n", t.Name)
				}
				fmt.Fprintf(out, "    %s:%d: %s\n      got  %s\n      want %s\n", r.File, f.Line, f.Step, f.Got, f.Want)
			}
		}
	}
	return nil
}

type junitFile struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Seconds string        `xml:"time,attr"`
	Failure *junitFailure `xml:"failure"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes results as JUnit XML.
func WriteJUnit(out io.Writer, results []Result) error {
	all := struct {
		XMLName xml.Name `xml:"testsuites"`
		Files   []junitFile
	}{}
	for _, r := range results {
		suite := junitFile{Name: r.File, Tests: len(r.Tests)}
		for _, t := range r.Tests {
			c := junitCase{Class: r.File, Name: t.Name, Seconds: fmt.Sprintf("%.3f", t.took.Seconds())}
			if !t.OK {
				suite.Failures++
				c.Failure = &junitFailure{Message: "got " + t.Failures[0].Got + ", want " + t.Failures[0].Want}
				var lines []string
				for _, f := range t.Failures {
					lines = append(lines, fmt.Sprintf("%s:%d: %s: got %s, want %s", r.File, f.Line, f.Step, f.Got, f.Want))
				}
				c.Failure.Text = strings.Join(lines, "\n")
			}
			suite.Cases = append(suite.Cases, c)
		}
		all.Files = append(all.Files, suite)
	}
	if _, err := io.WriteString(out, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(out)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(out, "\n")
	return err
}
