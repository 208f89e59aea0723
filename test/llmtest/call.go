package llmtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// A Call is what a client asks of a model.
type Call struct {
	API    string // "openai", "responses" (OpenAI's, too), "anthropic" or "gemini"; "" is openai
	Stream bool
	User   string
	// MaxTokens limits the output; 0 leaves it out.
	MaxTokens int64
	Plan      Plan
	// Header has more headers.
	Header map[string]string
	// Prompt is the text that is sent; it must need no escapes.
	Prompt string
}

// Request returns the call as the provider's own clients send it, to a model behind base, such as http://host:port.
func (c Call) Request(ctx context.Context, base string) (*http.Request, error) {
	path, body := c.text()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	plan, err := json.Marshal(c.Plan)
	if err != nil {
		return nil, err
	}
	for name, value := range c.Header {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(UserHeader, c.User)
	req.Header.Set(PlanHeader, string(plan))
	return req, nil
}

// Do sends the call and reads the answer to its end. The error of an answer that broke off is io.ErrUnexpectedEOF.
func (c Call) Do(ctx context.Context, client *http.Client, base string) (status int, err error) {
	req, err := c.Request(ctx, base)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

// text returns the path and the body.
func (c Call) text() (path, body string) {
	limit := func(name string) string {
		if c.MaxTokens == 0 {
			return ""
		}
		return fmt.Sprintf(`,"%s": %d`, name, c.MaxTokens)
	}
	messages := `"messages":[{"role":"user","content":"` + c.Prompt + `"}]`
	stream := ""
	if c.Stream {
		stream = `,"stream":true`
	}
	switch c.API {
	case "responses":
		return "/v1/responses", `{"model":"mock"` + limit("max_output_tokens") + stream + `,"input":"` + c.Prompt + `"}`
	case "anthropic":
		return "/v1/messages", `{"model":"mock"` + limit("max_tokens") + stream + `,` + messages + `}`
	case "gemini":
		method := "generateContent"
		if c.Stream {
			method = "streamGenerateContent?alt=sse"
		}
		return "/v1beta/models/mock:" + method, `{"contents":[{"parts":[{"text":"` + c.Prompt +
			`"}]}],"generationConfig":{"temperature":1` + limit("maxOutputTokens") + `}}`
	}
	if c.Stream {
		stream += `,"stream_options":{"include_usage":true}`
	}
	return "/v1/chat/completions", `{"model":"mock",` + messages + limit("max_completion_tokens") + stream + `}`
}
