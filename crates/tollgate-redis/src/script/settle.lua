-- Corrects a charge.
-- ARGV: tag, r (give back), q (give back to a queue) or f (take what was used already), units, units that are too many to count here, when it was
-- taken, kind, numbers. Returns: tag, units that could not be taken, those too many to count.
local key, kind, cost, issued = KEYS[1], args[6], args[3] + 0, args[5] + 0
local state, strange = state_of(key, kind)
local unpaid = not strange
  and (args[2] == 'f' and force(key, state, kind, 7, cost) or args[2] ~= 'f' and refund(key, state, kind, 7, cost, issued))
if not unpaid then return fault(key) end
return {args[1] + 0, unpaid, args[4]}
