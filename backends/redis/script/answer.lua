-- ANSWER: adds the outcome of an op to the output. It is text within a function or loop.
--   now, charged           the instant of the request, and that at which the op was charged
--   ok, left, retry, reset the outcome
-- uses: now, charged, ok, left, retry, reset, out, filled

if left < 0 then left = 0 end
out[filled + 1] = ok and left or -1 - left
if retry == 0 and charged == now then
  out[filled + 2], filled = reset, filled + 2
else
  out[filled + 2], out[filled + 3], out[filled + 4], filled = -1 - reset, retry, charged, filled + 4
end
