-- FULL: decides any slice, exactly as limit.Decide does. What leases, logs and debts need is made when the first of
-- them is met: functions are made anew in every run.

--@include prelude.lua
--@include input.lua

local salt = ARGV[2]
local zset, full = input[FLAGS] % 2 == FLAG_ZSET, input[FLAGS] >= FLAG_FULL

-- If the server's clock is not in the window of a calendar that was sent, the answer is the clock alone.
for l = limits, size, LIMIT_SIZE do
  if input[l] == CALENDAR then
    if input[l + WINDOW] < 0 then
      input[l + WINDOW] = -input[l + WINDOW]
    elseif clock < input[l + BEGINS] or clock >= input[l + ENDS] then
      return pack('<d', clock)
    end
  end
end

local out, filled = {clock}, 1
local since -- the instant from which the lives of keys are counted

local weigh, rest_for
--@include weights.lua
--@include states.lua
--@include step.lua
--@include clock.lua
--@include reserved.lua

local overflowing, may_owe, pay_back
local function debt_machine()
  --@include debt_windows.lua
  --@include debt.lua
end

--@include charge.lua
--@include simple.lua

local logs = {} -- by key: views
local load_log, sliding_log, listed_log, commit, refund_log, one_log, moved_log
local function log_machine()
  --@include log_view.lua
  --@include log_list.lua
  --@include log_write.lua
  --@include log_decide.lua
  --@include log_refund.lua
end

local leases
local function lease_machine()
  local m = {}
  --@include lease_view.lua
  --@include lease_refusals.lua
  --@include lease_end.lua
  --@include lease_take.lua
  --@include lease_common.lua
  return m
end

local function others_machine()
  --@include ops.lua
  --@include refund.lua
  --@include settlement.lua
  --@include alternatives.lua
  --@include others.lua
end

local others
local p, number = FIRST_REQUEST, 0
for _ = 1, input[REQUESTS] do
  local now, shape = input[p], input[p + 1]
  local kind = shape % OPS
  local n, common = (shape - kind) / OPS, false
  if kind < ALTERNATIVES then
    common, kind = kind >= WITH_LEASE, kind % WITH_LEASE
  end
  if now < 0 then now = clock end
  -- Injected instants run at a pace of their own: keys live to the later of their end by those and by the server's
  -- clock.
  since = now < precise and now or precise
  p = p + REQUEST_HEAD
  local mark = input[p] % EACH -- alternatives come first
  if kind == SIMPLE and mark < MARKED then
    simple(now, n, p)
  elseif kind == 0 and n == 1 and input[limits + LIMIT_SIZE * input[p + OP_LIMIT]] == LOG then
    if not one_log then log_machine() end
    one_log(now, p, number + 1)
  else
    if common then
      leases = leases or lease_machine()
      common = leases.common(now, n, p, kind == SETTLEMENT)
    end
    if not common then
      others = others or others_machine()
      others(now, n, p, number, kind)
    end
  end
  number = number + n
  p = p + (kind > SIMPLE and OP_SIZE + 1 or OP_SIZE) * n
end

--@include unlock.lua
local partly = full and unlock()
for k = 1, #keys do
  local s = states[k]
  if s and s[LIFE] then
    local key, number = keys[k], s[LIVES] == NUMBERED
    local at, n, m, lives, tag, life = unpack(s, AT, LIFE)
    --@include state_write.lua
  end
  if leases then leases.flush(k) end
end
if partly and out[2] == 1 then out[2], filled = -1, 2 end -- what has no room refuses nothing
--@include output.lua
