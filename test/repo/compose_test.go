package repo

import (
	"os"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/schema"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/internal/kit/settings"
	"github.com/headgate-rls/headgate/notify/gateway"
	"github.com/headgate-rls/headgate/notify/serve"
)

// composeFile is what the test needs of examples/notify/docker-compose.yml.
type composeFile struct {
	Services map[string]struct {
		Image       string
		Build       any
		Environment map[string]string
		Volumes     []string
		Healthcheck *struct{ Test []string }
		DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
		Profiles    []string
	}
	Volumes map[string]any
}

// checkCompose returns what is wrong with the file: it must fit the specification's schema,
// start what needs others when these are healthy, and keep PostgreSQL's data.
func checkCompose(text string) (found []string) {
	var whole map[string]any
	var c composeFile
	if err := yaml.Unmarshal([]byte(text), &whole); err != nil {
		return []string{err.Error()}
	}
	if err := schema.Validate(whole); err != nil {
		found = append(found, err.Error())
	}
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		return append(found, err.Error())
	}
	for name, needs := range map[string][]string{"gateway-outbox": {"postgres", "kafka", "redis"},
		"gateway-direct": {"postgres", "kafka", "redis"}, "sender": {"postgres", "kafka"}} {
		for _, need := range needs {
			if c.Services[name].DependsOn[need].Condition != "service_healthy" {
				found = append(found, name+" does not wait until "+need+" is healthy")
			}
			if h := c.Services[need].Healthcheck; h == nil || len(h.Test) == 0 {
				found = append(found, need+" has no health check")
			}
		}
		if c.Services[name].Build == nil {
			found = append(found, name+" is not built")
		}
	}
	for _, way := range []string{"outbox", "direct"} { // each has the profile of its name
		s := c.Services["gateway-"+way]
		if len(s.Profiles) != 1 || s.Profiles[0] != way || s.Environment["NOTIFY_GATEWAY_DELIVERY"] != way {
			found = append(found, "gateway-"+way+" is not the gateway of that profile")
		}
	}
	for name, s := range c.Services {
		for _, v := range s.Volumes {
			if volume, _, _ := strings.Cut(v, ":"); !strings.HasPrefix(volume, ".") && !strings.HasPrefix(volume, "/") {
				if _, ok := c.Volumes[volume]; !ok {
					found = append(found, name+" uses the volume "+volume+", which there is not")
				}
			}
		}
		if s.Image != "" && !pinnedImage.MatchString(s.Image) {
			found = append(found, name+" has an image without a version: "+s.Image)
		}
	}
	if v := c.Services["postgres"].Volumes; len(v) != 1 || !strings.HasSuffix(v[0], ":/var/lib/postgresql/data") ||
		strings.HasPrefix(v[0], "/") || strings.HasPrefix(v[0], ".") {
		found = append(found, "postgres keeps its data in no named volume")
	}
	return append(found, checkComposeSettings(c)...)
}

// checkComposeSettings holds the variables of both programs to their settings.
func checkComposeSettings(c composeFile) (found []string) {
	for service, table := range map[string]settings.Program{
		"gateway-outbox": new(gateway.Settings).Program(), "gateway-direct": new(gateway.Settings).Program(),
		"sender": new(serve.SenderSettings).Program(),
	} {
		var environ []string
		for name, value := range c.Services[service].Environment {
			environ = append(environ, name+"="+value)
		}
		fs := pflag.NewFlagSet(service, pflag.ContinueOnError)
		table.Define(fs)
		warnings, err := table.Resolve(fs, environ, nil)
		if err != nil {
			found = append(found, service+": "+err.Error())
		}
		for _, w := range warnings {
			if strings.Contains(w, "unknown") {
				found = append(found, w)
			}
		}
	}
	return found
}

func TestComposeFileStartsInOrder(t *testing.T) {
	data, err := os.ReadFile("../../examples/notify/docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, f := range checkCompose(text) {
		t.Errorf("examples/notify/docker-compose.yml: %s", f)
	}
	for change, want := range map[[2]string]string{
		{"restart: unless-stopped", "restarts: unless-stopped"}: "restarts",
		{"kafka: {condition: service_healthy}", "kafka: {condition: service_started}"}: "does not wait until " +
			"kafka is healthy",
		{"kafka: {condition: service_healthy}", "kafka: {condition: healthy}"}:                  "condition",
		{"healthcheck:\n      test: [\"CMD\", \"redis-cli\", \"ping\"]", "labels:\n      x: y"}: "",
		{"postgres-data:/var/lib", "./data:/var/lib"}:                                           "no named volume",
		{"\n  postgres-data: {}",
			""}: "the volume postgres-data, which there is not",
		{"image: redis:7", "image: redis"}:                                  "image without a version",
		{"NOTIFY_GATEWAY_REDIS:", "NOTIFY_GATEWAY_REDSI:"}:                  "NOTIFY_GATEWAY_REDSI",
		{"NOTIFY_GATEWAY_DELIVERY: outbox", "NOTIFY_GATEWAY_DELIVERY: box"}: "--delivery",
		{"profiles: [direct]", "profiles: [outbox]"}:                        "gateway-direct is not",
	} {
		changed := strings.Replace(text, change[0], change[1], 1)
		if found := strings.Join(checkCompose(changed), "\n"); changed == text || found == "" ||
			!strings.Contains(found, want) {
			t.Errorf("with %q: %q, want %q", change[1], found, want)
		}
	}
}
