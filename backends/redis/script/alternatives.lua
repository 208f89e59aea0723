-- ALTERNATIVES: ops of which one group is charged (limit/alternatives.go).
--   saved           what there is under the keys of ops: states, and logs
--   restore         puts back what was saved, and takes back what ops have done to leases
--   alternatives    the groups of ops that are alternatives, in the order in which they are tried. choices has the
--                   choice of each op, 0 for none, or is false if the bits of ops say it
--   choose          tries the groups after the ops that are none. It records what is chosen with them, fills all
--                   outcomes, and returns whether the request is admitted: if not, the caller takes back what it did
--   chosen_before   marks the groups of a request that was granted before
-- uses: states, logs, leases, take, ask, gives, hold_back, next, pairs, floor, table

local function copy(t)
  if not t then return nil end
  local c = {}
  for name, value in pairs(t) do c[name] = value end
  return c
end

local function saved(ops)
  local old_states, old_logs = {}, {}
  for i = 1, #ops do
    local k = ops[i][KEY]
    old_states[k] = states[k]
    if logs[k] and not old_logs[k] then old_logs[k] = copy(logs[k]) end -- views are changed in place
  end
  return old_states, old_logs
end

local function restore(old_states, old_logs)
  if leases then leases.rollback() end
  for k, s in pairs(old_states) do states[k] = s end
  for k, v in pairs(old_logs) do logs[k] = copy(v) end
end

local function alternatives(ops, choices)
  local groups, by_choice, marked = {}, {}, SETS
  for i = 1, #ops do
    local op, mark = ops[i], ops[i][BITS] % EACH
    local choice = choices and choices[i] or mark >= MARKED and marked or 0
    marked = marked + (mark >= ENDS_SET and SETS or mark >= ENDS_GROUP and 1 or 0)
    if choice > 0 then
      local group = by_choice[choice]
      if not group then
        group = {choice = choice, among = floor(choice / SETS)}
        group.ops = {}
        by_choice[choice] = group
        groups[#groups + 1] = group
      end
      group.ops[#group.ops + 1] = op
      op[CHOICE], op[OK] = choice, true -- until somebody looks
    end
  end
  table.sort(groups, function(a, b) return a.choice < b.choice end)
  return groups
end

-- has_room says whether all ops have room that are no shadows.
local function has_room(ops)
  for i = 1, #ops do
    if not ops[i][OK] and ops[i][BITS] % MARKED < SHADOW then return false end
  end
  return true
end

-- mark marks groups, by their sets, as chosen.
local function mark(groups)
  for _, group in pairs(groups) do
    for i = 1, #group.ops do group.ops[i][CHOSEN] = true end
  end
end

local function add(list, more)
  for i = 1, #more do list[#list + 1] = more[i] end
end

-- attempt records ops in place of what was recorded before.
local function attempt(ops, now, old_states, old_logs)
  restore(old_states, old_logs)
  hold_back(ops, now)
  for i = 1, #ops do take(ops[i], now, ops[i][COST], false) end
end

local function choose(ops, now, groups, old_states, old_logs)
  local always, chosen, missing = {}, {}, {}
  for i = 1, #ops do
    if not ops[i][CHOICE] then always[#always + 1] = ops[i] end
  end
  local taken = always
  for g = 1, #groups do
    local group = groups[g]
    if not chosen[group.among] then
      local list = {}
      add(list, taken)
      add(list, group.ops)
      attempt(list, now, old_states, old_logs)
      local room = has_room(group.ops)
      missing[group.among] = not room or nil
      if room then
        chosen[group.among], taken = group, list
      end
    end
  end
  if next(missing) or not has_room(always) then return false end
  mark(chosen)
  for i = 1, #ops do
    local op = ops[i]
    if op[CHOICE] and not op[CHOSEN] then ask(op, now, op[OK], gives(op)) end
  end
  return true
end

local function chosen_before(groups)
  local first = {}
  for g = 1, #groups do
    local group = groups[g]
    local best = first[group.among]
    for i = 1, #group.ops do group.held = group.held or group.ops[i][HELD] end
    if not best or group.held and not best.held then first[group.among] = group end
  end
  mark(first)
end
