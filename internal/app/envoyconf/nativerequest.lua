-- Writes into dynamic metadata what a call to a language model may use, llm:estimate, as Envoy's
-- ai_protocol_manager has read it: the client's limit on the output, and the length of the input.
local MOST = 1000000000 -- Envoy drops a descriptor with more hits.

function envoy_on_request(handle)
  local info = handle:streamInfo():dynamicTypedMetadata("envoy.ai.request_info")
  local output = info and info["max_output_tokens"]
  if not output then return end
  local input = info["estimated_input_tokens"]
  local n = output["value"] + (input and input["value"] or 0)
  handle:streamInfo():dynamicMetadata():set("llm", "estimate", string.format("%d", math.min(n, MOST)))
end
