-- Writes into dynamic metadata what a call to a language model may use, llm:estimate, and what it
-- has used, llm:tokens. A number that is not known stays out: Envoy then sends no descriptor for it.
-- A body is kept only up to MOST_BODY, an answer not at all.
local MOST = 1000000000 -- Envoy drops a descriptor with more hits.
local MOST_BODY = 1000000 -- Envoy refuses what is longer than its buffer, 1 MiB.
local MOST_USAGE = 2048
local BYTES_OF_A_TOKEN = 3

local LIMITS = {max_tokens = true, max_completion_tokens = true, max_output_tokens = true,
  maxoutputtokens = true, maxtokens = true}
local TIMES = {n = true, best_of = true, candidatecount = true, candidate_count = true}
local TOTALS = {total_tokens = true, totalTokenCount = true}
local PARTS = {prompt_tokens = true, input_tokens = true, cache_creation_input_tokens = true,
  cache_read_input_tokens = true}
local OUTPUTS = {completion_tokens = true, output_tokens = true}
local READS = {GET = true, HEAD = true, OPTIONS = true}

local function set(handle, key, n)
  handle:streamInfo():dynamicMetadata():set("llm", key, string.format("%d", math.min(math.ceil(n), MOST)))
end

-- estimate returns what a request may use at most, or nil if it sets no limit. Of keys that are there twice
-- the largest number counts. A name with \u in it may be any name, so that nothing is known.
local function estimate(body)
  local output, times
  for key, number in body:gmatch('"([^"]*)"%s*:%s*(%-?[%d.eE+-]*)') do
    if key:find("\\u00[2-7]") then return nil end
    local n = number ~= "" and tonumber(number)
    if n and n >= 0 then
      key = key:lower()
      if LIMITS[key] then output = math.max(output or 0, n) end
      if TIMES[key] then times = math.max(times or 1, n) end
    end
  end
  return output and output * (times or 1) + #body / BYTES_OF_A_TOKEN
end

function envoy_on_request(handle)
  local headers = handle:headers()
  if READS[headers:get(":method")] and not headers:get("upgrade") then
    set(handle, "tokens", 0)
    return
  end
  headers:remove("accept-encoding") -- what is compressed cannot be read
  local length = tonumber(headers:get("content-length") or "")
  if not length or length < 1 or length > MOST_BODY then return end
  local body = handle:body()
  local n = body and estimate(body:getBytes(0, body:length()))
  if n then set(handle, "estimate", n) end
end

-- count adds what a usage object says. The largest numbers count: streams repeat them while they grow.
local function count(object, used)
  for key, number in object:gmatch('"([%a_]+)"%s*:%s*(%d+)') do
    if OUTPUTS[key] then used.reports = used.reports + 1 end
    if TOTALS[key] or PARTS[key] or OUTPUTS[key] then
      used.tokens[key] = math.max(used.tokens[key] or 0, tonumber(number))
    end
  end
end

-- scan reads the usage objects in a part of an answer and returns the end that the next part may continue.
local function scan(text, used)
  local from = 1
  while true do
    local at = text:find('"usage', from, true)
    if not at then return text:sub(math.max(from, #text - 5)) end
    local object = text:sub(at, at + MOST_USAGE):match('^"usage%a*"%s*:%s*(%b{})')
    if object then
      count(object, used)
    elseif #text - at < MOST_USAGE then
      local _, last = text:find('^"usage%a*"?%s*:?%s*{?', at)
      if last == #text or text:sub(last, last) == "{" then return text:sub(at) end
    end
    from = at + 6
  end
end

-- total returns what was used, or nil. Anthropic's streams report once at the start and, if all went well, at
-- the end.
local function total(used, streamed)
  local sum = 0
  for key, n in pairs(used.tokens) do
    if TOTALS[key] then return n end
    sum = sum + n
  end
  return used.reports > (streamed and 1 or 0) and sum or nil
end

function envoy_on_response(handle)
  local own = handle:streamInfo():dynamicMetadata():get("llm")
  if own and own["tokens"] then return end
  local headers = handle:headers()
  local status, encoding = headers:get(":status"), headers:get("content-encoding")
  if status:find("^4") then
    set(handle, "tokens", 0) -- the model has not begun
    return
  end
  if not status:find("^2") or encoding and encoding ~= "identity" then return end
  local streamed = (headers:get("content-type") or ""):find("text/event-stream", 1, true)
  local rest, used = "", {tokens = {}, reports = 0}
  for chunk in handle:bodyChunks() do
    rest = scan(rest .. chunk:getBytes(0, chunk:length()), used)
  end
  local n = total(used, streamed)
  if n then set(handle, "tokens", n) end
end
