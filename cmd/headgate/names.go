package main

import (
	"os"
	"path/filepath"
	"strings"
)

// names are those of envoyproxy/ratelimit's programs, under which manifests and pipelines run this one, and what makes
// arguments of headgate of theirs.
var names = map[string]func(args []string) []string{
	referenceName:            func(args []string) []string { return append([]string{referenceName}, args...) },
	"ratelimit_client":       clientArguments,
	"ratelimit_config_check": configCheckArguments,
}

// clientArguments has ratelimit_client ask once, as headgate ask does.
func clientArguments(args []string) []string {
	own, descriptors := []string{"ask", "--hits", "1"}, []string(nil)
	for _, f := range goFlags(args, "grpc-use-tls") {
		switch f.name {
		case "dial_string":
			own = append(own, "--addr", f.value)
		case "domain":
			descriptors = append([]string{f.value}, descriptors...)
		case "descriptors":
			descriptors = append(descriptors, f.value)
		case "grpc-use-tls":
			own = append(own, "--tls="+f.value)
		case "grpc-server-ca-file":
			own = append(own, "--tls-ca", f.value)
		case "grpc-cert-file":
			own = append(own, "--tls-cert", f.value)
		case "grpc-key-file":
			own = append(own, "--tls-key", f.value)
		case "oltp-protocol": // spans are headgate's
		default:
			own = append(own, f.as())
		}
	}
	return append(append(own, "--"), descriptors...)
}

// configCheckArguments has ratelimit_config_check check all files of a directory, whatever their names are.
func configCheckArguments(args []string) []string {
	own := []string{"check"}
	for _, f := range goFlags(args, "merge_domain_configs") {
		switch f.name {
		case "config_dir":
			own = append(own, filesOf(f.value)...)
		case "merge_domain_configs":
			own = append(own, "--merge-domains="+f.value)
		default:
			own = append(own, f.as())
		}
	}
	return own
}

// filesOf returns the files of a directory, or the directory if it has none or cannot be read.
func filesOf(dir string) (list []string) {
	entries, _ := os.ReadDir(dir) // who gets the directory says what is wrong with it
	for _, e := range entries {
		if !e.IsDir() {
			list = append(list, filepath.Join(dir, e.Name()))
		}
	}
	if list == nil {
		return []string{dir}
	}
	return list
}

// A goFlag is one as Go's package flag reads it: -name value, --name value, -name=value.
type goFlag struct{ name, value string }

// as returns a flag that is not known as an argument, which is then an error.
func (f goFlag) as() string { return "--" + f.name }

// goFlags reads arguments. Those that are called switches need no value.
func goFlags(args []string, switches ...string) (list []goFlag) {
	for i := 0; i < len(args); i++ {
		text := strings.TrimPrefix(strings.TrimPrefix(args[i], "-"), "-")
		name, value, given := strings.Cut(text, "=")
		isSwitch := false
		for _, s := range switches {
			isSwitch = isSwitch || s == name
		}
		switch {
		case given:
		case isSwitch:
			value = "true"
		case i+1 < len(args):
			i++
			value = args[i]
		}
		list = append(list, goFlag{name, value})
	}
	return list
}
