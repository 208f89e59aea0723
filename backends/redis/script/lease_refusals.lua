-- REMEMBERED REFUSALS of limits with a hold, and leases that lie too far ahead (limit/leases.go, limit/clock.go).
--   ahead        how far away the end of a lease or refusal may be that lives for life
--   move         moves the end of leases that expire too late: they expire with those that are granted now
--   refusals     the members for refusals, the ones that are forgotten first coming first, as {until, how many,
--                member}, and the sum of those that are not over
--   move_refusals   does with them what move does with leases
--   remember     remembers a refusal
--   forgive      drops up to n refusals and returns how many
-- uses: input, full, keys, views, call, text, low, view, set, keep, score_of, string, table, tonumber, ceil, min, max

local function ahead(life, l) return life + max(input[l + WINDOW], AHEAD) end

local function move(k, now, l)
  local win, from = input[l + WINDOW], low(now + ahead(input[l + WINDOW], l))
  local till = 8 * ceil((now + win) / 1000)
  local r = call('ZREVRANGEBYSCORE', keys[k], HIGHEST, from, 'WITHSCORES', 'LIMIT', 0, MAX_MOVED)
  for i = 1, #r, 2 do
    local score = tonumber(r[i + 1])
    set(k, r[i], till + score % 8, score)
  end
end

local function refusals(k, now)
  local v = view(k, now)
  if not v.refusals then return {}, 0 end
  local r = call('ZRANGEBYSCORE', keys[k], text(EXACT), '+inf', 'WITHSCORES')
  local list, sum = {}, 0
  for i = 1, #r, 2 do
    if r[i] ~= 's' then
      local e = {tonumber(string.sub(r[i], 2)), tonumber(r[i + 1]) - EXACT, r[i]}
      list[#list + 1] = e
      if e[1] > now then sum = sum + e[2] end
    end
  end
  v.refusals = #list > 0
  table.sort(list, function(a, b) return a[1] < b[1] end)
  return list, sum
end

local function add_refusals(k, now, l, n)
  local hold, round = input[l + HOLD], input[l + ROUND]
  local till = ceil((now + hold) / round) * round
  local member = 'r' .. text(till)
  local old = score_of(k, member)
  set(k, member, (old or EXACT) + n, old)
  keep(k, till)
end

local function move_refusals(k, now, l)
  local most, n = now + ahead(input[l + HOLD], l), 0
  local list = refusals(k, now)
  for i = 1, #list do
    local e = list[i]
    if e[1] > most then
      set(k, e[3], nil, EXACT + e[2])
      n = n + e[2]
    end
  end
  if n > 0 and input[l + HOLD] > 0 then add_refusals(k, now, l, n) end
  return list
end

local function remember(k, now, l)
  if full then return end
  local list = move_refusals(k, now, l)
  for i = 1, #list do
    if list[i][1] <= now then call('ZREM', keys[k], list[i][3]) end
  end
  views[k].all = nil
  add_refusals(k, now, l, 1)
end

local function forgive(k, now, n)
  local list, dropped = refusals(k, now), 0
  for i = 1, #list do
    local e = list[i]
    local d = e[1] > now and min(e[2], n - dropped) or 0
    if d > 0 then
      set(k, e[3], e[2] > d and EXACT + e[2] - d or nil, EXACT + e[2])
      dropped = dropped + d
    end
  end
  return dropped
end
