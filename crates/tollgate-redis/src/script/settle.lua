-- Corrects a charge.
-- ARGV: tag, r (give back), q (give back to a queue) or f (take what was used already), units, units that are too many to count here, when it was
-- taken, then for each key: kind, numbers. Returns: tag, units that could not be taken, those too many to count.
local cost, issued, unpaid, a = args[3] + 0, args[5] + 0, 0, 6
for i = 1, #KEYS do
  local key, kind = KEYS[i], args[a]
  local state, strange = state_of(key, kind)
  local left = not strange
    and (args[2] == 'f' and force(key, state, kind, a + 1, cost) or args[2] ~= 'f' and refund(key, state, kind, a + 1, cost, issued))
  if not left then return fault(key) end
  if left > unpaid then unpaid = left end
  a = a + 1 + NUMBERS[kind]
end
return {args[1] + 0, unpaid, args[4]}
