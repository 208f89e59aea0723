package repo

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// kafkaClient is the module that only the notification gateway's programs contain.
const kafkaClient = "github.com/twmb/franz-go"

// TestHeadgateHasNoKafkaClient: the rate-limit service does not grow by what stands beside it.
func TestHeadgateHasNoKafkaClient(t *testing.T) {
	for program, has := range map[string]bool{"headgate": false, "notify-gateway": true, "notify-sender": true} {
		out, err := exec.Command("go", "list", "-deps", "../../cmd/"+program).Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		deps := strings.Fields(string(out))
		found := slices.ContainsFunc(deps, func(dep string) bool { return within(dep, kafkaClient) })
		if found != has || !slices.Contains(deps, module+"/cmd/"+program) {
			t.Errorf("cmd/%s contains %s: %v, want %v", program, kafkaClient, found, has)
		}
		if !has && slices.ContainsFunc(deps,
			func(dep string) bool {
				return within(dep, module+"/notify/kafka", module+"/notify/serve", module+"/notify/gateway")
			}) {
			t.Errorf("cmd/%s contains packages of the notification gateway", program)
		}
	}
}
