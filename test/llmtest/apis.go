package llmtest

import (
	"fmt"
	"strings"
)

// apiOf returns whose path it is, or nil.
func apiOf(path string) *api {
	switch {
	case strings.HasSuffix(path, "/chat/completions"):
		return &openAI
	case strings.HasSuffix(path, "/responses"):
		return &responses
	case strings.HasSuffix(path, "/messages"):
		return &anthropic
	case strings.HasSuffix(path, "enerateContent"):
		return &gemini
	}
	return nil
}

func none(*answer) []string { return nil }

var openAI = api{
	usage: func(in, out int64) string {
		return fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":`+
			`{"cached_tokens":3,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":1}}`, in, out, in+out)
	},
	whole: func(text, usage string) string {
		return `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"mock","choices":[{"index":0,"message":` +
			`{"role":"assistant","content":"` + text + `"},"finish_reason":"stop"}],"usage":` + usage +
			`,"system_fingerprint":"fp"}`
	},
	begin: none,
	piece: func(a *answer) string {
		return `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"` +
			a.text() + `"},"finish_reason":null}],"usage":null}` + "\n\n"
	},
	end: func(a *answer) []string {
		var last string
		if a.usage {
			last = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[],"usage":` + a.report() +
				"}\n\n"
		}
		return []string{last, "data: [DONE]\n\n"}
	},
}

var responses = api{
	always: true,
	usage: func(in, out int64) string {
		return fmt.Sprintf(`{"input_tokens":%d,"input_tokens_details":{"cached_tokens":3},"output_tokens":%d,`+
			`"output_tokens_details":{"reasoning_tokens":1},"total_tokens":%d}`, in, out, in+out)
	},
	whole: func(text, usage string) string {
		return `{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"mock","output":[{"type":` +
			`"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"` + text +
			`","annotations":[]}]}],"usage":` + usage + `}`
	},
	begin: func(*answer) []string {
		return []string{"event: response.created\ndata: " + `{"type":"response.created","sequence_number":0,"response":` +
			`{"id":"resp_1","object":"response","status":"in_progress","model":"mock","output":[],"usage":null}}` + "\n\n"}
	},
	piece: func(a *answer) string {
		return "event: response.output_text.delta\ndata: " + `{"type":"response.output_text.delta","item_id":"msg_1",` +
			`"output_index":0,"content_index":0,"delta":"` + a.text() + `"}` + "\n\n"
	},
	end: func(a *answer) []string {
		return []string{"event: response.completed\ndata: " + `{"type":"response.completed","sequence_number":9,"response":` +
			`{"id":"resp_1","object":"response","status":"completed","model":"mock","output":[],"usage":` + a.report() +
			"}}\n\n"}
	},
}

var anthropic = api{
	always: true,
	usage: func(in, out int64) string {
		return fmt.Sprintf(`{"input_tokens":%d,"cache_creation_input_tokens":0,"cache_read_input_tokens":%d,`+
			`"cache_creation":{"ephemeral_5m_input_tokens":0},"output_tokens":%d,"service_tier":"standard"}`,
			in-in/2, in/2, out)
	},
	whole: func(text, usage string) string {
		return `{"id":"msg_1","type":"message","role":"assistant","model":"mock","content":[{"type":"text","text":"` + text +
			`"}],"stop_reason":"end_turn","stop_sequence":null,"usage":` + usage + `}`
	},
	begin: func(a *answer) []string {
		if !a.usage {
			return nil
		}
		return []string{"event: message_start\ndata: " + `{"type":"message_start","message":{"id":"msg_1","type":"message",` +
			`"content":[],"usage":` + a.speak.usage(a.Input, 1) + "}}\n\n", "event: ping\ndata: {\"type\": \"ping\"}\n\n"}
	},
	piece: func(a *answer) string {
		return "event: content_block_delta\ndata: " + `{"type":"content_block_delta","index":0,"delta":` +
			`{"type":"text_delta","text":"` + a.text() + `"}}` + "\n\n"
	},
	end: func(a *answer) []string {
		usage := a.report()
		if a.usage && a.End != Malformed {
			usage = fmt.Sprintf(`{"output_tokens":%d}`, a.Output)
		}
		return []string{"event: message_delta\ndata: " + `{"type":"message_delta","delta":{"stop_reason":"end_turn"},` +
			`"usage":` + usage + "}\n\n", "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"}
	},
}

var gemini = api{
	always: true,
	usage: func(in, out int64) string {
		return fmt.Sprintf(`{"promptTokenCount":%d,"candidatesTokenCount":%d,"totalTokenCount":%d,"promptTokensDetails":`+
			`[{"modality":"TEXT","tokenCount":%d}],"thoughtsTokenCount":%d}`, in, out-out/2, in+out, in, out/2)
	},
	whole: func(text, usage string) string {
		return `{"candidates":[{"content":{"parts":[{"text":"` + text + `"}],"role":"model"},"finishReason":"STOP"}],` +
			`"usageMetadata": ` + usage + `,"modelVersion":"mock","responseId":"r"}`
	},
	begin: none,
	piece: func(a *answer) string {
		return `data: {"candidates":[{"content":{"parts":[{"text":"` + a.text() + `"}]}}],"usageMetadata": ` +
			a.report() + "}\r\n\r\n"
	},
	end: none,
}
