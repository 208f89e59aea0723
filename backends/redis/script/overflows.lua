-- OVERFLOWS: finds the keys under which an op of a refused request had no room and takes something all the same. Then
-- all ops under such a key are charged that take anything. It is text within a function.
--   ops, over   the ops, with their outcomes; the keys, which it adds
-- uses: input, ops, over

for i = 1, #ops do
  local op = ops[i]
  if not op[OK] and input[op[LIMIT] + BELOW] >= 0 and op[COST] > 0 and not op[CHOICE] then over[op[KEY]] = true end
end
