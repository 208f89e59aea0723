-- LEASES: how they begin again and end (limit/leases.go).
--   renew       moves the end of a lease away that has been acquired again n times
--   end_late    ends the first leases that expire within so many milliseconds, and returns whether there was any
--   end_owner   ends an owner's leases among the next OWNER_SLICE that expire at an instant or later. It returns
--               whether there was any, and when the first lease expires that it has not looked at, or 0
--   give_back   ends what an op of negative cost says and returns whether there was any. quiet: an end that finds
--               nothing is not remembered
-- uses: input, keys, views, call, text, low, expiry, count, set, drop, keep, find, refusals, move_refusals, forgive,
--   string, tonumber, unpack, floor, ceil, min, max

local function renew(k, holder, now, l, n, lease)
  local till = ceil((now + input[l + WINDOW]) / 1000)
  set(k, 'l' .. holder, max(till * 8 + n, lease - lease % 8 + n), lease)
  keep(k, till * 1000)
end

-- note_end remembers an end that came before its lease.
local function note_end(k, holder, now, gone)
  call('ZREMRANGEBYSCORE', keys[k], text(-floor(now / 1000)), '(0')
  views[k].all = nil
  local till = ceil((now + ENDED_LIFE) / 1000)
  set(k, 'e' .. holder, -till, gone)
  if call('ZCOUNT', keys[k], '-inf', '(0') > MAX_ENDED
    and call('ZREMRANGEBYSCORE', keys[k], '-inf', '(' .. text(-floor((now + 2 * ENDED_LIFE) / 1000))) == 0 then
    call('ZREM', keys[k], unpack(call('ZREVRANGEBYSCORE', keys[k], '(0', '-inf', 'LIMIT', 0, 1)))
  end
  keep(k, till * 1000)
end

-- end_any ends n leases or refusals, whosever they are.
local function end_any(k, now, n, l)
  move_refusals(k, now, l)
  local _, sum = refusals(k, now)
  n = min(n, sum + count(k, now))
  local left = n - forgive(k, now, n)
  while left > 0 do
    local r = call('ZRANGEBYSCORE', keys[k], low(now), HIGHEST, 'WITHSCORES', 'LIMIT', '0', text(min(left, PAGE)))
    local first = {}
    for i = 1, #r, 2 do first[#first + 1] = {r[i], tonumber(r[i + 1])} end
    drop(k, first)
    left = left - #first
  end
  return n > 0
end

local function end_late(k, now, ms)
  local till = text(floor((now + ms * 1000) / 1000) * 8 + 7)
  local r = call('ZRANGEBYSCORE', keys[k], low(now), till, 'WITHSCORES', 'LIMIT', 0, OWNER_SLICE)
  local list = {}
  for i = 1, #r, 2 do list[#list + 1] = {r[i], tonumber(r[i + 1])} end
  drop(k, list)
  return #list > 0
end

local function end_owner(k, now, owner, from)
  local least = text(max(ceil(from / 1000), floor(now / 1000) + 1) * 8)
  local rank = call('ZCOUNT', keys[k], '-inf', '(' .. least)
  local mine, seen, last, rest, more = {}, 0, nil, 0, true
  while more do
    local r = call('ZRANGE', keys[k], rank, rank + PAGE - 1, 'WITHSCORES')
    more, rank = #r == 2 * PAGE, rank + PAGE
    for i = 1, #r, 2 do
      local score = tonumber(r[i + 1])
      local ends = expiry(score)
      if score >= EXACT or seen >= OWNER_SLICE and ends ~= last then
        if score < EXACT then rest = ends end
        more = false
        break
      end
      seen, last = seen + 1, ends
      if string.sub(r[i], 2, 1 + #owner) == owner then mine[#mine + 1] = {r[i], score} end
    end
  end
  drop(k, mine)
  return #mine > 0, rest
end

local function give_back(k, now, l, units, ending, holder, quiet)
  if holder == '' then return end_any(k, now, -units, l) end
  local n = count(k, now)
  local lease, gone = find(k, holder, now)
  if not lease then
    if not quiet and ending ~= END_KNOWN then note_end(k, holder, now, gone) end
  elseif ending == END_ATTEMPT and lease % 8 > 0 then
    set(k, 'l' .. holder, lease - 1, lease)
  else
    set(k, 'l' .. holder, nil, lease)
    views[k].n = n - 1
  end
  return lease ~= nil
end
