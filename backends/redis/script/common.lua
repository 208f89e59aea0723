-- COMMON: decides a slice of simple requests, whose limits are fixed and sliding windows and token buckets. Only fixed
-- windows may take something of a cost without room, and no more than there is (BELOW is 0). Some ops may be
-- alternatives (limit/alternatives.go): the caller sees from the outcomes which of them are chosen. Where the script
-- meets anything else, such as a key of another type or a clock that has stepped back, it has written nothing, and
-- returns ''. Then the caller sends the slice to full.lua, which decides everything.
--
-- Functions are made anew in every run, and so are the variables that they use. So this script makes none for fixed
-- windows, and two for others.

--@include prelude.lua
--@include input.lua

local others = input[FLAGS] % (2 * FLAG_OTHERS) >= FLAG_OTHERS
local numbers = input[FLAGS] % (2 * FLAG_NUMBERS) >= FLAG_NUMBERS
local choices = input[FLAGS] >= FLAG_CHOICES

local weigh, rest_for
if others then
  --@include weights.lua
end

-- By key: the figures of its state (see AT in constants.lua), in lists that are made as long as they have to be:
-- tables for each key would cost more. The third figure and the tag are needed if not all are fixed windows. Then,
-- whether some op is charged by itself, so that it may be a number; and of a number, its start and units as they were
-- read.
local at_of, n_of, lives_of, life_of = {unpack(keys)}, {unpack(keys)}, {unpack(keys)}, {unpack(keys)}
local m_of, tag_of = others and {unpack(keys)}, others and {unpack(keys)}
local alone, began, was = {}, {}, {}
local stored = #keys > 1 and pcall_('MGET', unpack(keys)) or {pcall_('GET', keys[1])}
if stored.err then stored = {} end -- the user may lack the right to MGET
for k = 1, #keys do
  -- MGET returns nothing for keys of other types, too.
  local raw = stored[k] or #keys > 1 and pcall_('GET', keys[k])
  local tag, at, n, m, lives = others and UNUSED or FIXED, 0, 0, 0, 0
  if raw then
    tag = UNUSED
    --@include state_read.lua
    if tag ~= FIXED and (not others or tag == UNUSED) then return '' end
    if not (at <= EXACT and n >= 0 and n <= EXACT and m >= 0 and m <= EXACT) then return '' end
    if lives == NUMBERED then began[k], was[k] = at, n end
  end
  at_of[k] = at
  n_of[k] = n
  lives_of[k] = lives
  life_of[k] = false
  if others then m_of[k], tag_of[k] = m, tag end
end

local out, filled = {clock}, 1
local injected = false -- some request brings its instant
local room = {} -- of a request with a second round, by op: whether it had room and is not charged for that
local fits = true -- whether all have room so far: of a group of alternatives, or of the ops that are none
local chosen, from = false, 0 -- whether a group before this one in its set had room; where this one begins
local changed = {} -- of a request, in fives: keys, and their figures before
local p = FIRST_REQUEST
for _ = 1, input[REQUESTS] do
  local now = input[p]
  if now < 0 then now = clock else injected = true end
  -- Injected instants run at a pace of their own: keys live to the later of their end by those and by the server's
  -- clock.
  local since = now < precise and now or precise
  local first = p + REQUEST_HEAD
  local last = first + (input[p + 1] - SIMPLE) / OPS * OP_SIZE - OP_SIZE
  local status, one_op = filled + 1, first == last
  -- No op bears on another. If some had room in a request that is refused, or in a group of alternatives that has no
  -- room (then undo is set), all changes are undone. A second round (again) records what is charged all the same, and
  -- has these ops ask what is left. So do, in any round, the alternatives behind the chosen one.
  local again, wary, undo = false, choices, false
  while true do
    local admitted, changes = true, 0
    filled = status
    for i = first, last, OP_SIZE do
      local code, cost, l = input[i], input[i + OP_COST], limits + LIMIT_SIZE * input[i + OP_LIMIT]
      local bits = code % OP_BITS
      local k = (code - bits) / OP_BITS
      local at, n, m = at_of[k], n_of[k], nil
      if at > now then return '' end
      if numbers and (one_op and bits < MARKED or bits >= EACH) then alone[k] = true end
      local asks
      if wary then
        asks = chosen or again and bits < EACH and room[i]
        if asks then cost = 0 end
      end
      local want, cap, win = cost > 1 and cost or 1, input[l + CAPACITY], input[l + WINDOW]
      local start = now - now % win
      local ends = start + win
      local ok, left, retry, reset, records
      if not others then
        --@include fixed_window.lua
      else
        local algorithm, one, two = input[l], input[l + STEP], input[l + STEPS]
        if tag_of[k] == UNUSED then tag_of[k] = algorithm end
        if tag_of[k] ~= algorithm then return '' end
        m = m_of[k]
        if algorithm == BUCKET then
          --@include token_bucket.lua
        elseif algorithm == SLIDING then
          --@include sliding_window.lua
        else
          --@include fixed_window.lua
        end
      end
      if not ok then
        if asks then
          ok = true -- it had room, or nobody looks. If it gives back, it may wait for a unit
          if input[i + OP_COST] >= 0 then retry = 0 end
        else
          if left > 0 and input[l + BELOW] == 0 then -- a fixed window: it takes what there is
            records, at, n = true, start, cap
          end
          if bits % MARKED < SHADOW then fits = false end
        end
      end
      if records then
        if not one_op then
          changed[changes + 1] = k
          changed[changes + 2] = at_of[k]
          changed[changes + 3] = n_of[k]
          changed[changes + 4] = life_of[k]
          if others then changed[changes + 5] = m_of[k] end
          changes = changes + 5
        end
        at_of[k] = at
        n_of[k] = n
        life_of[k] = ends - since
        if others then m_of[k] = m end -- that of a fixed window never changes
      end
      local charged = now
      --@include answer.lua
      if wary and bits >= ENDS_GROUP and bits < EACH then
        if from < first then from = first end
        if fits then
          chosen = true
        else
          for j = from, i, OP_SIZE do room[j] = true end -- if it had
          undo = undo or from < i -- of a single op nothing is recorded
        end
        fits, from = true, i + OP_SIZE
        if bits >= ENDS_SET then
          admitted = admitted and chosen
          chosen = false
        end
      end
    end
    if not fits then admitted, fits = false, true end
    out[status] = admitted and 1 or 0
    if admitted and not undo or one_op or again then break end
    local o = status
    for i = first, last, OP_SIZE do
      room[i] = out[o + 1] >= 0 and (not admitted or room[i])
      again = again or room[i]
      o = o + (out[o + 2] < 0 and 4 or 2)
    end
    wary = true
    if not again then break end
    for i = 1, changes, 5 do
      local k = changed[i]
      at_of[k], n_of[k], life_of[k] = changed[i + 1], changed[i + 2], changed[i + 3]
      if others then m_of[k] = changed[i + 4] end
    end
  end
  p = last + OP_SIZE
end

for k = 1, #keys do
  local life = life_of[k]
  if life then
    local key, at, n, lives = keys[k], at_of[k], n_of[k], lives_of[k]
    local units = lives == NUMBERED and began[k] == at and n < MOST_UNITS and not injected and n - was[k]
    -- A number goes on being counted by INCRBY, if its key lives long enough: a shorter window may have made it.
    if not (units and (tonumber(pcall_('PTTL', key)) or 0) * 1000 >= life
        and tonumber(pcall_('INCRBY', key, units == 1 and '1' or units))) then
      local m, tag = others and m_of[k] or 0, others and tag_of[k] or FIXED
      local number = lives == NUMBERED or numbers and alone[k]
      --@include state_write.lua
    end
  end
end
--@include output.lua
