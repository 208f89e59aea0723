package repo

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Where releases go; the release workflow pushes there.
const (
	imageName = "ghcr.io/headgate-rls/headgate"
	chartName = "oci://ghcr.io/headgate-rls/charts/headgate"
)

var (
	imageMention = regexp.MustCompile(regexp.QuoteMeta(imageName) + `([:@][-.:$\w]+)?`)
	chartMention = regexp.MustCompile(regexp.QuoteMeta(chartName) + `( --version ([-.\w]+))?`)
	chartFields  = regexp.MustCompile(`(?m)^(version|appVersion): \S+$`)
	releaseTag   = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)
	newestTag    = regexp.MustCompile(`(?m)^## (v\S+),`)
)

// versioned are the files that tell a user which image or chart to take: the documents, and what is applied as it is.
func versioned(t *testing.T) []string {
	t.Helper()
	list := documents(t)
	for _, pattern := range []string{"charts/headgate/values.yaml", "charts/headgate/ci/*.yaml", "examples/*/*.y*ml",
		"examples/*/*/*.y*ml"} {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, found...)
	}
	return list
}

// checkVersions returns what is wrong with the images and charts that a text names, where tag is the release's.
func checkVersions(text, tag string, bare bool) (found []string) {
	for _, m := range imageMention.FindAllStringSubmatch(text, -1) {
		named := strings.TrimSuffix(m[1], ".")
		if named == ":"+tag || named == ":$VERSION" || named == ":"+tag+"-oracle" || named == "" && bare ||
			strings.HasPrefix(named, "@sha256:") {
			continue
		}
		found = append(found, fmt.Sprintf("%s is an image that no release pushes, want the tag %s", m[0], tag))
	}
	for _, m := range chartMention.FindAllStringSubmatch(text, -1) {
		if strings.TrimSuffix(m[2], ".") != tag[1:] {
			found = append(found, fmt.Sprintf("%s is a chart that no release pushes, want --version %s", m[0], tag[1:]))
		}
	}
	return found
}

// beforeRelease is a paragraph that holds until there is a release.
var beforeRelease = regexp.MustCompile(`(?m)^ *\*\*Until the first release\*\*(.+\n)+\n`)

// nameRelease has a text name another release, and leaves out what held until there was one.
func nameRelease(text, old, tag string) string {
	text = beforeRelease.ReplaceAllString(text, "")
	return strings.NewReplacer(imageName+":"+old, imageName+":"+tag,
		chartName+" --version "+old[1:], chartName+" --version "+tag[1:]).Replace(text)
}

// chartTag is the image's tag that the chart takes unless a value names another one.
func chartTag(t *testing.T) string {
	t.Helper()
	var c struct {
		Version    string
		AppVersion string `yaml:"appVersion"`
	}
	if err := yaml.Unmarshal(readFile(t, filepath.Join(chartDir, "Chart.yaml")), &c); err != nil {
		t.Fatal(err)
	}
	if !releaseTag.MatchString(c.AppVersion) || c.AppVersion != "v"+c.Version {
		t.Fatalf("Chart.yaml: version %s, appVersion %s: want 1.2.3 and v1.2.3 of a release", c.Version, c.AppVersion)
	}
	return c.AppVersion
}

// TestPagesNameWhatReleasesPush: the chart, the documents and the examples name images and charts by the tag that the
// release workflow pushes: that of the newest release, and before the first one that of the first.
func TestPagesNameWhatReleasesPush(t *testing.T) {
	tag := chartTag(t)
	newest := newestTag.FindStringSubmatch(string(readFile(t, "../../CHANGELOG.md")))
	if newest != nil && newest[1] != tag {
		t.Errorf("the chart takes the image of %s, and the newest release is %s", tag, newest[1])
	}
	for _, file := range []string{"README.md", "docs/migrate.md", "docs/kubernetes.md"} {
		if says := beforeRelease.Match(readFile(t, "../../"+file)); says != (newest == nil) {
			t.Errorf("%s says that nothing is released: %v; CHANGELOG.md says: %v", file, says, newest == nil)
		}
	}
	mentions := 0
	for _, file := range versioned(t) {
		text := string(readFile(t, file))
		mentions += len(imageMention.FindAllString(text, -1))
		for _, finding := range checkVersions(text, tag, strings.Contains(file, "charts/")) {
			t.Errorf("%s: %s", file, finding)
		}
	}
	if mentions < 4 {
		t.Errorf("only %d mentions of the image are found", mentions)
	}
	workflow := string(readFile(t, "../../.github/workflows/release.yml"))
	for _, want := range []string{"IMAGE: " + imageName, "CHARTS: " + strings.TrimSuffix(chartName, "/headgate")} {
		if !strings.Contains(workflow, want+"\n") {
			t.Errorf("release.yml does not push to %s", want)
		}
	}
}

// writeRelease has the chart and the documents name a release.
func writeRelease(t *testing.T, tag string) {
	t.Helper()
	old := chartTag(t)
	put := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range versioned(t) {
		text := string(readFile(t, file))
		if changed := nameRelease(text, old, tag); changed != text {
			put(file, changed)
		}
	}
	chart := filepath.Join(chartDir, "Chart.yaml")
	put(chart, chartFields.ReplaceAllStringFunc(string(readFile(t, chart)), func(line string) string {
		if strings.HasPrefix(line, "appVersion") {
			return "appVersion: " + tag
		}
		return "version: " + tag[1:]
	}))
}

func TestVersionRules(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"the release", "run " + imageName + ":v1.2.3 serve", ""},
		{"with Oracle", imageName + ":v1.2.3-oracle", ""},
		{"a digest", imageName + "@sha256:0123", ""},
		{"the end of a sentence", "It is " + imageName + ":v1.2.3.", ""},
		{"a build", imageName + ":dev", "no release pushes"},
		{"no tag", "run " + imageName + " serve", "no release pushes"},
		{"an older one", imageName + ":v1.2.2", "want the tag v1.2.3"},
		{"the chart", chartName + " --version 1.2.3", ""},
		{"a chart without a version", "helm install " + chartName, "want --version 1.2.3"},
		{"another chart", chartName + " --version 0.0.0", "want --version 1.2.3"},
	} {
		expect(t, c.name, checkVersions(c.text, "v1.2.3", false), c.want)
	}
	got := nameRelease(imageName+":v1.0.0-oracle "+chartName+" --version 1.0.0", "v1.0.0", "v1.2.3")
	expect(t, "renamed", checkVersions(got, "v1.2.3", false), "")
	const note = "a\n\n   **Until the first release** there\n   is none.\n\nb\n"
	if got := nameRelease(note, "v1.0.0", "v1.0.0"); got != "a\n\nb\n" {
		t.Errorf("after the release: %q", got)
	}
}
