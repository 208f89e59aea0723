-- OUTPUT: the end of a script. It returns the answers as doubles.
-- uses: out, filled, pack, rep, min, unpack, table

if filled <= MOST then return pack('<' .. rep('d', filled), unpack(out, 1, filled)) end
local pieces = {}
for from = 1, filled, MOST do
  local to = min(from + MOST - 1, filled)
  pieces[#pieces + 1] = pack('<' .. rep('d', to - from + 1), unpack(out, from, to))
end
return table.concat(pieces)
