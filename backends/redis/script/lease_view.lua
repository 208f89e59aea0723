-- LEASE VIEWS. The leases of a key are a zset with members of four kinds:
--   l + holder   a lease; its score is 8 * the millisecond at which it expires, plus how often it was acquired again
--   e + holder   an end that came before its lease; its score is minus the millisecond it is forgotten at
--   r + instant  refusals that are forgotten then; its score is 2^52 and how many
--   s            its score is 2^52 and the amounts of all leases that are reservations
-- A view caches what this run knows of a key:
--   n        number of leases that are live at now
--   latest   score of the lease that expires last, nil if unknown
--   sum      amounts of all leases, nil if unknown; summed: flush must write it
--   untidy, ends, refusals   whether there may be expired leases, ends and refusals
--   holder, lease, gone, stored   the last argument and results of find
--   all      members and scores, if they are few and unchanged
--   fresh    the run created the key
--   life     how long the key must exist after since, 0 if the run does not change that
--
--   text, low, expiry   a number as Redis reads it; the lowest score of live leases; when a score expires
--   view, count      the view of a key, nil if it has another type or the mark of a later version; how many leases are
--                    live
--   amount           how many units a lease reserves (limit.Amount)
--   reserved, add_reserved   the amounts of all leases of a key; adds to them
--   set              gives a member a score, or removes it if that is nil; old is the one it has
--   drop             removes live leases with these scores
--   keep             has flush extend the key's life to an instant
--   m.begin, m.commit, m.rollback   a request begins, is recorded, has its changes undone
--   m.flush          writes the deferred changes of a view
--   find             the scores of a holder's lease and end, nil for those that are over; and that of the lease anyway
--   nth, latest      the live lease that expires after n others; the score of the one that expires last, or 0
--   tidy             drops some of what has expired, and returns whether there is more
-- uses: call, read, keys, since, unpack, string, tonumber, pairs, floor, ceil, min, max, m

local function text(x) return string.format('%d', x) end -- much faster than Redis writes a double

local journal = nil -- what must be done to undo a request's changes
local views, far = {}, {} -- by key: its view, and whether move was called

local function lowest(now) return (floor(now / 1000) + 1) * 8 end
local function low(now) return text(lowest(now)) end
local function expiry(score) return floor(tonumber(score) / 8) * 1000 end

local function view(k, now)
  local v = views[k]
  if v and v.now == now then return v end
  local all, least = read('ZRANGE', keys[k], '0', '3', 'WITHSCORES'), lowest(now)
  if not all then return nil end
  if not v then
    v = {life = 0, fresh = not all[1]}
    views[k] = v
  end
  v.now, v.n, v.latest, v.untidy, v.ends, v.refusals, v.holder, v.all = now, 0, 0, false, false, false, nil, all
  if #all == 8 then
    local first = tonumber(all[2])
    if first < -EXACT then
      v.now = nil
      return nil -- the mark of a later version: see unreadable.lua
    end
    v.all, v.untidy, v.ends, v.refusals, v.latest = nil, first < least, first < 0, true, nil
    v.n = call('ZCOUNT', keys[k], text(least), HIGHEST)
    return v
  end
  local sum = 0
  for i = 2, #all, 2 do
    local score = tonumber(all[i])
    if all[i - 1] == 's' then
      sum = score - EXACT
    elseif score >= EXACT then
      v.refusals = true
    elseif score >= least then
      v.n, v.latest = v.n + 1, score
    elseif score < -EXACT then
      v.now = nil
      return nil
    else
      v.untidy, v.ends = true, v.ends or score < 0
    end
  end
  v.sum = v.sum or sum
  return v
end

local function count(k, now)
  local v = view(k, now)
  return v and v.n
end

local function amount(member)
  local hex = string.match(member, '~(%x+)$')
  return hex and #hex <= 14 and min(tonumber(hex, 16), EXACT) or 0
end

local function reserved(k)
  local v = views[k]
  v.sum = v.sum or tonumber(call('ZSCORE', keys[k], 's') or EXACT) - EXACT
  return v.sum
end

local function add_reserved(k, units)
  if units == 0 then return end
  local v = views[k]
  v.sum, v.summed = reserved(k) + units, true
end

local function set(k, member, score, old)
  local units, v, kind = 0, views[k], string.byte(member)
  if kind == LETTER_L then
    if not old ~= not score then units = amount(member) end
    if score and v.latest and score >= v.latest then
      v.latest = score
    elseif old and old == v.latest then
      v.latest = nil
    end
  end
  v.holder, v.all, v.ends, v.refusals = nil, nil, v.ends or kind == LETTER_E, v.refusals or kind == LETTER_R
  if not score then units = -units end
  if journal then journal[#journal + 1] = {k, member, old, units, not score} end
  add_reserved(k, units)
  if score then
    call('ZADD', keys[k], text(score), member)
  else
    call('ZREM', keys[k], member)
  end
end

local function drop(k, list)
  local v = views[k]
  v.n, v.holder, v.all = v.n - #list, nil, nil
  for from = 1, #list, PAGE do
    local names, units = {}, 0
    for i = from, min(from + PAGE - 1, #list) do
      local n = amount(list[i][1])
      names[#names + 1], units = list[i][1], units - n
      if list[i][2] == v.latest then v.latest = nil end
      if journal then journal[#journal + 1] = {k, list[i][1], list[i][2], -n, true} end
    end
    call('ZREM', keys[k], unpack(names))
    add_reserved(k, units)
  end
end

local function keep(k, till)
  local v = views[k]
  v.life = max(v.life, till - since)
end

-- over returns the instant at which a member is of no more use.
local function over(member, score)
  local kind = string.sub(member, 1, 1)
  if kind == 'l' then return expiry(score) end
  if kind == 'e' then return -score * 1000 end
  return tonumber(string.sub(member, 2))
end

-- A key that was gone meanwhile needs an end again.
function m.rollback()
  for i = #journal, 1, -1 do
    local k, member, old, units = unpack(journal[i], 1, 4)
    add_reserved(k, -units)
    if old then
      call('ZADD', keys[k], text(old), member)
      keep(k, over(member, old))
    else
      call('ZREM', keys[k], member)
    end
  end
  for _, v in pairs(views) do v.now = nil end
  journal = {}
end

function m.begin() journal, far = {}, {} end
function m.commit() journal = nil end

-- Keys get an eighth of their life more, so that few calls must extend it.
function m.flush(k)
  local v = views[k]
  if not v then return end
  if v.summed and v.sum > 0 then
    call('ZADD', keys[k], text(EXACT + v.sum), 's')
  elseif v.summed then
    call('ZREM', keys[k], 's')
  end
  local ms = ceil((v.life + MARGIN) / 1000)
  if v.life > 0 and (v.fresh or call('PTTL', keys[k]) < ms) then call('PEXPIRE', keys[k], text(ms + floor(ms / 8))) end
end

-- score_of returns the score of a member, nil if it is not there.
local function score_of(k, member)
  local all = views[k].all
  if not all then return tonumber(call('ZSCORE', keys[k], member) or nil) end
  for i = 1, #all, 2 do
    if all[i] == member then return tonumber(all[i + 1]) end
  end
end

local function find(k, holder, now)
  local v = view(k, now)
  if v.holder == holder then return v.lease, v.gone, v.stored end
  local lease = (v.n > 0 or v.untidy) and score_of(k, 'l' .. holder) or nil
  local gone = v.ends and score_of(k, 'e' .. holder) or nil
  v.stored = lease
  if lease and floor(lease / 8) * 1000 <= now then lease = nil end
  if gone and -gone * 1000 <= now then gone = nil end
  v.holder, v.lease, v.gone = holder, lease, gone
  return lease, gone, v.stored
end

local function nth(k, now, n)
  local rank = call('ZCOUNT', keys[k], '-inf', '(' .. low(now)) + n
  return call('ZRANGE', keys[k], rank, rank, 'WITHSCORES')
end

local function latest(k, now)
  local v = view(k, now)
  if not v.latest and v.n > 0 then
    v.latest = tonumber(call('ZREVRANGEBYSCORE', keys[k], HIGHEST, low(now), 'WITHSCORES', 'LIMIT', '0', '1')[2])
  end
  return v.latest or 0
end

local function tidy(k, now)
  local v = view(k, now)
  if not v.untidy then return false end
  local r = call('ZRANGEBYSCORE', keys[k], '0', '(' .. low(now), 'LIMIT', '0', text(PAGE))
  v.untidy, v.holder, v.all = #r == PAGE, nil, nil
  if #r == 0 then return false end
  call('ZREM', keys[k], unpack(r))
  local units = 0
  for i = 1, #r do units = units - amount(r[i]) end
  add_reserved(k, units)
  return #r == PAGE
end
