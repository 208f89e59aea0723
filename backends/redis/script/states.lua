-- STATES of windows and buckets. They are read once per slice and written once, at its end. In a run a state is a table
-- that never changes, but is replaced: see constants.lua.
--   states     by key
--   read       what a reading command answers, or nil for a key of another type; other errors end the script
--   load_state the state of key k for an algorithm, or nil if the key has no such state
-- uses: keys, unpack, unpack_, call, pcall_, string, type

local states, stored = {}, nil

local function read(...)
  local r = pcall_(...)
  if type(r) == 'table' and r.err then
    if string.find(r.err, 'WRONGTYPE', 1, true) then return nil end
    return call(...)
  end
  return r
end

local function load_state(k, algorithm)
  if algorithm == CALENDAR then algorithm = FIXED end -- they have one state
  if not stored then
    stored = #keys > 1 and #keys <= MOST and pcall_('MGET', unpack(keys)) or {}
  end
  -- MGET returns nothing for keys of other types, as for missing ones, and no error if the user may not read a key.
  local raw = stored[k] or read('GET', keys[k])
  if raw == nil then return nil end
  local tag, at, n, m, lives, life = algorithm, 0, 0, 0, 0, false
  if raw then
    tag = nil
    --@include state_read.lua
    if #raw == 29 then -- of builds before 1.0: it is written anew
      tag, at, n, m = unpack_('<Bddd', raw)
    elseif algorithm == FIXED and #raw > 0 and #raw < 8 and not string.find(raw, '%D') then
      tag, life = FIXED, 0 -- INCRBY has met no key and has made one: it is written anew, to expire
    end
    if tag ~= algorithm then return nil end
    if not (at >= 0 and at <= EXACT and n >= 0 and n <= EXACT and m >= 0 and m <= EXACT) then return nil end
  end
  local s = {at, n, m, lives, tag, life}
  states[k] = s
  return s
end
