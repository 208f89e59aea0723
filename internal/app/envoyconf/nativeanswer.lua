-- Writes into dynamic metadata what a call to a language model has used, llm:tokens, as Envoy's ai_protocol_manager has
-- read it. It stands before that filter, so that it sees answers after it. What is not known stays out: Envoy then
-- sends no descriptor for it.
local MOST = 1000000000 -- Envoy drops a descriptor with more hits.
local COMPLETE = 1 -- of envoy.data.ai.v3.TokenUsage: the answer has ended, and all of its usage was read
local READS = {GET = true, HEAD = true, OPTIONS = true}

local function set(handle, n)
  handle:streamInfo():dynamicMetadata():set("llm", "tokens", string.format("%d", math.min(n, MOST)))
end

function envoy_on_request(handle)
  local headers = handle:headers()
  if READS[headers:get(":method")] and not headers:get("upgrade") then
    set(handle, 0)
    return
  end
  headers:remove("accept-encoding") -- what is compressed cannot be read
end

function envoy_on_response(handle)
  local own = handle:streamInfo():dynamicMetadata():get("llm")
  if own and own["tokens"] then return end
  local status = handle:headers():get(":status")
  if status:find("^4") then
    set(handle, 0) -- the model has not begun
    return
  end
  if not status:find("^2") then return end
  for _ in handle:bodyChunks() do end -- the usage is there when the answer has ended
  local usage = handle:streamInfo():dynamicTypedMetadata("envoy.ai.token_usage")
  if not usage or usage["extraction_status"] ~= COMPLETE then return end
  local total, reported = usage["total_tokens"], usage["provider_total_tokens"]
  local n = math.max(total and total["value"] or 0, reported and reported["value"] or 0)
  if n > 0 then set(handle, n) end
end
