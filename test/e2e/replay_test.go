package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// A logFormat is an access log as its users have it without a choice of their own. Envoy itself writes the lines.
type logFormat struct {
	name, form string
	format     string // as Envoy's log_format has it; "": Envoy's default
	client     string // the template of the client's address
	path, id   string // the fields with the path and the ID of the request
	cost       string // the field with the tokens
}

// The formats are those of the sources of Istio (commit 01358b3e, EnvoyTextLogFormat in
// pilot/pkg/model/telemetry_logging.go), Envoy Gateway 1.9 (commit d32f2829, EnvoyJSONLogFields in
// internal/xds/translator/accesslog.go) and Envoy AI Gateway 1.1 (examples/access-log/basic.yaml; 0.4: its
// documentation).
var logFormats = []logFormat{
	{name: "envoy", form: "Envoy's default text format", client: "{x_forwarded_for|last}", path: "path",
		id: "request_id"},
	{name: "istio", form: "Istio's default text format", client: "{downstream_remote_address|no-port}", path: "path",
		id: "request_id",
		format: `text_format_source: {inline_string: "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% ` +
			`%PROTOCOL%\" %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% ` +
			`\"%UPSTREAM_TRANSPORT_FAILURE_REASON%\" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% ` +
			`%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" ` +
			`\"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\" %UPSTREAM_CLUSTER_RAW% ` +
			`%UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% ` +
			`%ROUTE_NAME%\n"}`},
	{name: "envoy-gateway", form: "Envoy Gateway's default JSON", client: "{downstream_remote_address|no-port}",
		path: "x-envoy-origin-path", id: "x-request-id",
		format: "json_format: {" + gatewayFields + ", protocol: '%PROTOCOL%', " +
			"response_flags: '%RESPONSE_FLAGS%', response_code_details: '%RESPONSE_CODE_DETAILS%', ':authority': " +
			"'%REQ(:AUTHORITY)%', requested_server_name: '%REQUESTED_SERVER_NAME%', route_name: '%ROUTE_NAME%'}"},
	{name: "ai-gateway", form: "Envoy AI Gateway's JSON", client: "{downstream_remote_address|no-port}",
		path: "x-envoy-origin-path", id: "x-request-id", cost: "gen_ai.usage.input_tokens",
		format: "json_format: {" + gatewayFields + ", request.path: '%REQ(:PATH)%', " +
			"gen_ai.request.model: '%REQ(X-AI-EG-MODEL)%', " +
			"gen_ai.usage.input_tokens: '%DYNAMIC_METADATA(io.envoy.ai_gateway:llm_input_token)%', " +
			"gen_ai.usage.output_tokens: '%DYNAMIC_METADATA(io.envoy.ai_gateway:llm_output_token)%', " +
			"session.id: '%DYNAMIC_METADATA(io.envoy.ai_gateway:session.id)%'}"},
	{name: "ai-gateway-0.4", form: "Envoy AI Gateway's JSON", client: "{downstream_remote_address|no-port}",
		path: "x-envoy-origin-path", id: "x-request-id", cost: "genai_tokens_input",
		format: "json_format: {" + gatewayFields + ", genai_model_name: '%REQ(X-AI-EG-MODEL)%', " +
			"genai_tokens_input: '%DYNAMIC_METADATA(io.envoy.ai_gateway:llm_input_token)%', " +
			"response_flags: '%RESPONSE_FLAGS%'}"},
}

const gatewayFields = `start_time: '%START_TIME%', method: '%REQ(:METHOD)%', ` +
	`x-envoy-origin-path: '%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%', response_code: '%RESPONSE_CODE%', ` +
	`connection_termination_details: '%CONNECTION_TERMINATION_DETAILS%', ` +
	`upstream_transport_failure_reason: '%UPSTREAM_TRANSPORT_FAILURE_REASON%', bytes_received: '%BYTES_RECEIVED%', ` +
	`bytes_sent: '%BYTES_SENT%', duration: '%DURATION%', ` +
	`x-envoy-upstream-service-time: '%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%', ` +
	`x-forwarded-for: '%REQ(X-FORWARDED-FOR)%', user-agent: '%REQ(USER-AGENT)%', ` +
	`x-request-id: '%REQ(X-REQUEST-ID)%', upstream_host: '%UPSTREAM_HOST%', ` +
	`upstream_cluster: '%UPSTREAM_CLUSTER%', upstream_local_address: '%UPSTREAM_LOCAL_ADDRESS%', ` +
	`downstream_local_address: '%DOWNSTREAM_LOCAL_ADDRESS%', downstream_remote_address: '%DOWNSTREAM_REMOTE_ADDRESS%'`

// tokens stands for the gateway that counts tokens: each answer of a model has used 7.
const tokens = `- name: tokens
  typed_config:
    '@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
    default_source_code:
      inline_string: |
        function envoy_on_response(handle)
          if handle:headers():get(":status") == "200" then
            handle:streamInfo():dynamicMetadata():set("io.envoy.ai_gateway", "llm_input_token", 7)
          end
        end`

const perClientLimit = `
domain: e2e
descriptors: [{key: remote_address, rate_limit: {unit: day, requests_per_unit: %d}}]
`

// startLogged runs an Envoy that writes each format into a file of dir.
func startLogged(t *testing.T, env environment, dir string) *front {
	t.Helper()
	var loggers strings.Builder
	for _, f := range logFormats {
		fmt.Fprintf(&loggers, "- name: envoy.access_loggers.file\n  typed_config:\n    '@type': "+
			"type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog\n    path: %s\n",
			filepath.Join(dir, f.name+".log"))
		if f.format != "" {
			fmt.Fprintf(&loggers, "    log_format: {%s}\n", f.format)
		}
	}
	s := startService(t, "--rules", writeFile(t, "rules.yaml", fmt.Sprintf(perClientLimit, 30)))
	return startFront(t, env.envoy, setup{Services: []string{s.GRPC}, Manager: "use_remote_address: true",
		Loggers: loggers.String(), Filters: tokens, Routes: []route{{"/limited", "[{actions: [{remote_address: {}}]}]"}}})
}

// What Envoy logs in the formats that people have is replayed as it is: with the rules that were in force, replay finds
// the answers that Envoy has logged.
func TestAccessLogsAreReplayedAsTheyAre(t *testing.T) {
	const clients, each, limit = 3, 42, 30
	onEnvoys(t, func(t *testing.T, env environment) {
		insideHour()
		dir := t.TempDir()
		f := startLogged(t, env, dir)
		for i := range each {
			for c := range clients {
				f.send(fmt.Sprintf("127.0.3.%d", 1+c), "GET", fmt.Sprintf("/limited?n=%d", clients*i+c), "x-forwarded-for",
					fmt.Sprintf("10.9.%d.%d", c, i), "user-agent", `curl" "8.5.0" "-" "10.0.0.1:80`, "x-ai-eg-model", "m")
			}
		}
		f.send("127.0.3.9", "GET", "/busy", "user-agent", "curl/8.5.0")
		const lines = clients*each + 1
		for _, form := range logFormats {
			file := filepath.Join(dir, form.name+".log")
			testenv.Eventually(t, 10*time.Second, "write "+file, func() string {
				if text, err := os.ReadFile(file); err != nil || bytes.Count(text, []byte("\n")) != lines {
					return fmt.Sprint(err, bytes.Count(text, []byte("\n")), " lines")
				}
				return ""
			})
			t.Run(form.name, func(t *testing.T) { form.replay(t, file, lines, clients*(each-limit)) })
		}
	})
}

// replay replays a file with a limit of 30 a day for each client, as it was in force, and with 20.
func (form logFormat) replay(t *testing.T, file string, lines, refused int) {
	t.Helper()
	run := func(limit int, descriptor string, more ...string) result {
		rules := writeFile(t, "rules.yaml", fmt.Sprintf(perClientLimit, limit))
		args := []string{"replay", "--rules", rules, "--domain", "e2e", "--descriptor", descriptor, file}
		return command(t, nil, append(args, more...)...)
	}
	same := run(30, "remote_address="+form.client)
	// The last line is of a client that has met no limit, and of a server that answered 429.
	for _, want := range []string{"read as " + form.form + ": " + file, fmt.Sprintf("%d requests from", lines),
		fmt.Sprintf("refused before %d ", refused), fmt.Sprintf("after %d ", refused), "0 newly refused, 0 newly admitted"} {
		if same.code != 0 || !strings.Contains(same.out, want) || strings.Contains(same.out, "note:") {
			t.Errorf("no %q in %v", want, same)
		}
	}
	if fewer := run(20, "remote_address="+form.client); fewer.code != 3 ||
		!strings.Contains(fewer.out, "30 newly refused, 0 newly admitted") ||
		!strings.Contains(fewer.out, "e2e|remote_address=127.0.3.2") {
		t.Errorf("with fewer: %v", fewer)
	}
	field, _, _ := strings.Cut(form.client, "|")
	for _, c := range []struct{ descriptor, write string }{
		{"remote_address=" + field + "}", form.client},
		{"path={" + form.path + "}", "{" + form.path + "|no-query}"},
		{"id={" + form.id + "}", "the ID of the request"},
	} {
		if own := run(30, c.descriptor); !strings.Contains(own.out, "note: most lines have a key of their own") ||
			!strings.Contains(own.out, c.write) {
			t.Errorf("keys of their own: no %q in %v", c.write, own)
		}
	}
	if form.cost == "" {
		return
	}
	// 30 requests have used 7 each; of the others the lines say nothing, and one has failed.
	if costs := run(7*30, "remote_address="+form.client, "--cost", form.cost); costs.code != 0 ||
		!strings.Contains(costs.out, "0 newly refused, 0 newly admitted") ||
		!strings.Contains(costs.out, fmt.Sprintf("note: %d lines were refused and so have no %s", refused, form.cost)) ||
		!strings.Contains(costs.out, "note: 1 line has failed and so has no "+form.cost) {
		t.Errorf("costs: %v", costs)
	}
}
