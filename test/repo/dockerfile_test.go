package repo

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// instruction is one of a Dockerfile, with continued lines joined.
type instruction struct {
	line int
	name string // in capitals
	rest string
}

func parseDockerfile(text string) []instruction {
	var all []instruction
	joined, start := "", 0
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if joined == "" {
			start = i + 1
		}
		if more, ok := strings.CutSuffix(line, "\\"); ok {
			joined += more + " "
			continue
		}
		name, rest, _ := strings.Cut(joined+line, " ")
		all = append(all, instruction{start, strings.ToUpper(name), strings.TrimSpace(rest)})
		joined = ""
	}
	return all
}

var pinnedImage = regexp.MustCompile(`:[0-9][^@]*$|@sha256:[0-9a-f]{64}$`)

// checkDockerfile returns what is wrong with the image: its bases must not move by themselves, and it must not run as
// root. The program must be static; with Oracle's driver, which needs a C library, the final image must have one.
func checkDockerfile(text string, oracle bool) []string {
	var found []string
	bad := func(i instruction, format string, args ...any) {
		found = append(found, fmt.Sprintf("line %d: %s", i.line, fmt.Sprintf(format, args...)))
	}
	stages := []string{}
	var static, driver bool
	var final struct {
		base             string
		user, entrypoint instruction
		ports            []string
	}
	for _, i := range parseDockerfile(text) {
		switch i.name {
		case "FROM":
			f := slices.DeleteFunc(strings.Fields(i.rest), func(s string) bool { return strings.HasPrefix(s, "--") })
			if len(f) == 0 {
				bad(i, "FROM names no image")
				continue
			}
			image := f[0]
			if strings.Contains(image, "latest") {
				bad(i, "the image %s is another one every day: name a version", image)
			} else if image != "scratch" && !slices.Contains(stages, image) && !pinnedImage.MatchString(image) {
				bad(i, "the image %s is not pinned: give it a version tag", image)
			}
			if len(f) == 3 && strings.EqualFold(f[1], "AS") {
				stages = append(stages, f[2])
			}
			final.base, final.user, final.entrypoint, final.ports = image, instruction{}, instruction{}, nil
		case "RUN":
			if strings.Contains(i.rest, "go build") {
				static = strings.Contains(i.rest, "CGO_ENABLED=0")
				driver = strings.Contains(i.rest, "CGO_ENABLED=1") && strings.Contains(i.rest, "-tags godror")
			}
		case "ENV":
			static = static || strings.Contains(i.rest, "CGO_ENABLED=0")
		case "ADD":
			bad(i, "ADD fetches and unpacks things: use COPY")
		case "USER":
			final.user = i
		case "ENTRYPOINT":
			final.entrypoint = i
		case "EXPOSE":
			final.ports = append(final.ports, strings.Fields(i.rest)...)
		}
	}
	whole := instruction{}
	switch {
	case oracle && !driver:
		bad(whole, "the program is not built with CGO_ENABLED=1 and -tags godror, so it has no driver of Oracle")
	case oracle && final.base == "scratch":
		bad(whole, "the final stage has no C library, which Oracle's driver needs")
	case !oracle && !static:
		bad(whole, "the program is not built with CGO_ENABLED=0, so it needs a C library that the final image lacks")
	}
	user, _, _ := strings.Cut(final.user.rest, ":")
	if user == "" || user == "0" || user == "root" {
		bad(final.user, "the final stage runs as root: end it with USER 65532:65532")
	}
	var exec []string
	if err := json.Unmarshal([]byte(final.entrypoint.rest), &exec); err != nil || len(exec) == 0 {
		bad(final.entrypoint, `ENTRYPOINT %s is not in exec form (["/headgate"]): a shell in between would swallow SIGTERM`,
			final.entrypoint.rest)
	}
	slices.Sort(final.ports)
	if want := []string{"6070", "8080", "8081", "8082"}; !slices.Equal(final.ports, want) {
		bad(whole, "the final stage exposes the ports %v, want %v", final.ports, want)
	}
	return found
}

func TestDockerfileFollowsItsRules(t *testing.T) {
	same := map[string][]string{} // what images say of themselves
	for _, name := range []string{"Dockerfile", "Dockerfile.oracle"} {
		text := string(readFile(t, filepath.Join(root(t), name)))
		for _, finding := range checkDockerfile(text, name != "Dockerfile") {
			t.Errorf("%s: %s", name, finding)
		}
		for _, i := range parseDockerfile(text[strings.LastIndex(text, "\nFROM "):]) {
			if slices.Contains([]string{"ARG", "LABEL", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}, i.name) {
				same[name] = append(same[name], i.name+" "+i.rest)
			}
		}
	}
	if !slices.Equal(same["Dockerfile"], same["Dockerfile.oracle"]) {
		t.Errorf("the final stages differ:\n%q", same)
	}
}

func TestDockerfileRules(t *testing.T) {
	const good = "FROM golang:1.26.8-bookworm AS build\n" +
		"RUN CGO_ENABLED=0 \\\n  go build ./x\n" +
		"FROM scratch\n# note\nUSER 65532:65532\nEXPOSE 8081 8080 6070 8082\nENTRYPOINT [\"/headgate\"]\n"
	expect(t, "in order", checkDockerfile(good, false), "")
	oracle := strings.NewReplacer("CGO_ENABLED=0", "CGO_ENABLED=1", "go build", "go build -tags godror", "FROM scratch",
		"FROM debian:12.12-slim").Replace(good)
	expect(t, "with Oracle", checkDockerfile(oracle, true), "")
	expect(t, "without the driver", checkDockerfile(strings.Replace(oracle, "-tags godror", "", 1), true), "no driver")
	expect(t, "without a C library", checkDockerfile(strings.Replace(oracle, "debian:12.12-slim", "scratch", 1), true),
		"no C library")
	for _, c := range []struct{ name, old, new, want string }{
		{"no tag", "golang:1.26.8-bookworm", "golang", "not pinned"},
		{"latest", "golang:1.26.8-bookworm", "golang:1-latest", "every day"},
		{"a tag that is a word", "golang:1.26.8-bookworm", "golang:bookworm",
			"line 1: the image golang:bookworm is not pinned"},
		{"a final image that moves", "FROM scratch", "FROM distroless/static", "not pinned"},
		{"a stage as base", "FROM scratch", "FROM build", ""},
		{"cgo", "CGO_ENABLED=0", "", "CGO_ENABLED"},
		{"root by number", "USER 65532:65532", "USER 0", "runs as root"},
		{"root by default", "USER 65532:65532\n", "", "runs as root"},
		{"user of the first stage only", "FROM scratch\n# note\nUSER 65532:65532\n", "USER 65532\nFROM scratch\n",
			"runs as root"},
		{"shell form", `["/headgate"]`, "/headgate", "exec form"},
		{"a port less", " 6070", "", "ports"},
		{"ADD", "USER", "ADD x y\nUSER", "use COPY"},
	} {
		if !strings.Contains(good, c.old) {
			t.Fatalf("%s: the example lacks %q", c.name, c.old)
		}
		expect(t, c.name, checkDockerfile(strings.Replace(good, c.old, c.new, 1), false), c.want)
	}
}
