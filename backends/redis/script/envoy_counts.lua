-- COUNTS of layout=envoy, by key: whether it is there, what is stored, what counts now, and for how many seconds it is
-- needed if it is to be written.
--   load     reads the counter of key k. If it is not a count, it returns the answer to the request
--   put      sets what counts under key k for an op of the limit at l and the instant now
--   step     decides an op alone, records it and fills the outcome o: LEFT is without room what is taken of a limit
--            that saturates
--   unlock   has a full server take what is written to counters that are there: see unlock.lua
-- uses: input, keys, clock, jitter, call, pcall_, string, type, tonumber, ceil, min, max

local there, stored, counts, lives = {}, {}, {}, {}

local function load(k)
  if counts[k] then return nil end
  local raw, n = pcall_('GET', keys[k]), 0
  if type(raw) == 'table' then -- another type, or the user may not read
    if not string.find(raw.err, 'WRONGTYPE', 1, true) then call('GET', keys[k]) end
    n = nil
  elseif raw then
    n = string.find(raw, '^-?%d+$') and #raw <= 20 and tonumber(raw)
  end
  if not n or n < -EXACT then
    local status
    --@include unreadable.lua
    return status
  end
  there[k], stored[k], counts[k] = raw and true, n, min(max(n, 0), EXACT)
end

local function put(k, n, now, l)
  local win = input[l + WINDOW]
  counts[k] = min(n, EXACT)
  -- Injected instants run at a pace of their own: see full.lua.
  lives[k] = max(lives[k] or 0, win / 1000000 + jitter, ceil((now - now % win + win - clock) / 1000000))
end

local function step(k, cost, now, l, o)
  local cap, win, n, want = input[l + CAPACITY], input[l + WINDOW], counts[k], max(cost, 1)
  local start = now - now % win
  local at, ends = start, start + win
  local taken = 0
  local ok, left, retry, reset, records
  --@include fixed_window.lua
  if not ok and input[l + BELOW] == 0 and cost > 0 then
    taken, records, n = max(left, 0), true, n + cost
    left = 0
  end
  if records then put(k, n, now, l) end
  o[OK], o[LEFT], o[RETRY], o[RESET], o[CHARGED] = ok, taken > 0 and taken or max(left, 0), retry, reset, now
end

local function unlock()
  local first, new = nil, {}
  for k = 1, #keys do
    if lives[k] and not there[k] then
      new[#new + 1] = k
    elseif lives[k] then
      first = first or k
    end
  end
  if not first then return false end
  pcall_('PEXPIRE', keys[first], string.format('%.0f', 1000 * lives[first]))
  for i = 1, #new do lives[new[i]] = nil end
  return #new > 0
end
