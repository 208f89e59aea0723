-- UNREADABLE: what becomes of a request that meets a value which this script cannot read. It is text within a function.
-- A later version of headgate marks what it writes in another format than this one: a string, or the first element of
-- a list, begins with a byte from 128 on; a sorted set has a member with a score below -2^52, such as '-inf'.
--   k        the key
--   status   the answer to the request, which it sets: 1 + k, and LATER more where the value has the mark
-- uses: k, status, keys, pcall_, string, type, tonumber

status = 1 + k
local first = pcall_('GET', keys[k])
if type(first) ~= 'string' then first = pcall_('LRANGE', keys[k], '0', '0')[1] end
if type(first) ~= 'string' then first = '' end
local lowest = pcall_('ZRANGE', keys[k], '0', '0', 'WITHSCORES')[2]
if (string.byte(first) or 0) > 127 or (tonumber(lowest or 0) or 0) < -EXACT then status = LATER + status end
