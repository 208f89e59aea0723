// Package envoyconf makes the configuration of Envoy that a domain's rules need: what the rules have to know of
// requests, how the ends of requests in flight are reported, and how refusals and delays reach the client.
//
// It knows Envoy from 1.36 on, and works around what differs between versions. What is written is in envoy.yaml.tmpl;
// golden files and real Envoys hold it.
//
// # To change it
//
//   - what Envoy is configured with: template.go and its template, config.go, actions.go, rules.go and options.go; go
//     test ./internal/app/envoyconf ./cmd/headgate -run Envoy
//   - how Envoy routes by what rules choose: choice.go and choose.lua; go test ./internal/app/envoyconf; go test
//     ./test/llm -run 'CallsGo|Groups'
//   - which usage fields of language models are read: llm.lua and test/llmtest (the model of tests); go test
//     ./internal/app/envoyconf -run Lua; go test ./test/llm
//   - what is handed on that Envoy itself has read of them: nativeanswer.lua and nativerequest.lua; go test
//     ./internal/app/envoyconf -run EnvoyReads
package envoyconf
