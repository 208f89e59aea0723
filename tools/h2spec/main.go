// Command h2spec runs the generic, http2 and hpack cases of
// github.com/summerwind/h2spec against a server that speaks HTTP/2 without
// TLS, and writes a JUnit report.
//
//	go run . -host 127.0.0.1 -port 8081 -report report.xml [SECTION...]
//
// A section is such as http2/6.9.1; without any it runs all.
// It exits with 0 if all cases could be run, whatever came of them: the report
// says that.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/summerwind/h2spec"
	"github.com/summerwind/h2spec/config"
)

func main() {
	host := flag.String("host", "127.0.0.1", "the server's host")
	port := flag.Int("port", 0, "the server's port")
	timeout := flag.Duration("timeout", time.Second, "how long to wait for what a case expects")
	report := flag.String("report", "", "the file to write the JUnit report to")
	flag.Parse()
	_, err := h2spec.Run(&config.Config{
		Host: *host, Port: *port, Path: "/", Timeout: *timeout,
		MaxHeaderLen: 4000, Strict: true, JUnitReport: *report, Sections: flag.Args(),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "h2spec:", err)
		os.Exit(1)
	}
}
