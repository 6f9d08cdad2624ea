-- Settles a charge.
-- ARGV: number of the call, r (refund), q (refund to a queue) or f (charge usage that is known afterwards), units, further units
-- that exceed any limit, the moment of the charge, kind, numbers. Returns: number of the call, units without room, the further
-- units.
local key, kind, cost, issued = KEYS[1], args[6], args[3] + 0, args[5] + 0
local state, is_foreign = state_of(key, kind)
local unpaid = not is_foreign
  and (args[2] == 'f' and charge_saturating(key, state, kind, 7, cost) or args[2] ~= 'f' and refund(key, state, kind, 7, cost, issued))
if not unpaid then return fault(key) end
return {args[1] + 0, unpaid, args[4]}
