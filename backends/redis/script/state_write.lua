-- WRITE A STATE. It is text within a loop. One that lives long enough is written over where it is, which costs a third;
-- but not if it is of no use any more, so that a Ping, which writes such a state, tries the command that all depends
-- on.
--   key, number            the key, and whether it is to be a number if it can be one
--   at, n, m, lives, tag, life   its state
-- uses: key, number, at, n, m, lives, tag, life, precise, call, pcall_, pack, floor, ceil, min, string

if number and tag == FIXED and life > 0 and life <= NEAR and at - precise <= NEAR and precise - at <= NEAR
    and at % 1000000 == 0 and n < MOST_UNITS and m == 0 then
  local digits = string.format('%d%010d', FIRST_START + at / 1000000 % STARTS, n)
  call('SET', key, digits, 'PX', ceil((life + 2 * MARGIN) / 1000))
elseif not (life > 0 and precise + life + MARGIN <= lives * 1000000
    -- The third figure of a fixed window never changes.
    and pcall_('SETRANGE', key, '1', tag == FIXED and pack('<I7d', at, n) or pack('<I7dd', at, n, m)) == 28) then
  -- In advance, so that few takes must move the key's end.
  life = life + 2 * MARGIN + (tag == BUCKET and floor(life / 8) or 0)
  local till = min(floor((precise + life) / 1000000), 4294967295)
  call('SET', key, pack('<BI7ddI4', tag, at, n, m, till), 'PX', ceil(life / 1000))
end
