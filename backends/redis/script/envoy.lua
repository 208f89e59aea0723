-- ENVOY: decides a slice of requests on counters of layout=envoy, which envoyproxy/ratelimit counts in as well: whole
-- numbers, one for each window, with the window's start in the name of the key. All limits are fixed windows that
-- refuse or saturate, all instants are given and whole seconds. ARGV[2] says how many seconds keys live beyond the
-- length of their window.
--
-- A cost that a limit with overflow saturate refuses is counted all the same, beyond the limit, as that program does.
-- So a counter may be of any size; what is beyond EXACT is as good as that, and is not changed.

--@include prelude.lua
--@include input.lua

local jitter = tonumber(ARGV[2])
local out, filled = {clock}, 1

--@include envoy_counts.lua
--@include envoy_requests.lua

local p = FIRST_REQUEST
for _ = 1, input[REQUESTS] do
  local now, shape = input[p], input[p + 1]
  local kind = shape % OPS
  local n = (shape - kind) / OPS
  p = p + REQUEST_HEAD
  if kind == REFUND then
    give_back(now, n, p)
  elseif kind == SETTLEMENT then
    correct(now, p)
  else
    decide(now, n, p)
  end
  p = p + (kind > SIMPLE and OP_SIZE + 1 or OP_SIZE) * n
end

local partly = input[FLAGS] >= FLAG_FULL and unlock()
for k = 1, #keys do
  if lives[k] and stored[k] <= EXACT then
    call('SET', keys[k], string.format('%.0f', counts[k]), 'EX', string.format('%.0f', lives[k]))
  end
end
if partly and out[2] == 1 then out[2], filled = -1, 2 end
--@include output.lua
