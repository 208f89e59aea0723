-- UNLOCK: a server that is full rejects a script's first write if it may need memory, but no write after that. So a
-- first write that needs none has the states be written that are there already.
--   unlock   leaves out states that would be new, and returns whether there are both
-- uses: keys, states, precise, pcall_, max, floor, ceil

local function unlock()
  local first, new = nil, {}
  for k = 1, #keys do
    local s = states[k]
    if s and s[LIFE] then
      if s[LIVES] == 0 then new[#new + 1] = s else first = first or k end
    end
  end
  if not first then return false end
  local s = states[first]
  pcall_('PEXPIRE', keys[first], max(s[LIVES] * 1000 - floor(precise / 1000), ceil(s[LIFE] / 1000), 1))
  for i = 1, #new do new[i][LIFE] = false end
  return #new > 0
end
