-- Moves the usage of a key from the former numbers of its limit to the present ones.
-- ARGV: number of the call, then for the former and the present key: kind, numbers. Returns: number of the call, moved units.
local from, to, kind, a = KEYS[1], KEYS[2], args[2], 3
local state, is_foreign = state_of(from, kind)
local units = not is_foreign and used(from, state, kind, a)
if not units then return fault(from) end
if units > 0 then
  a = a + NUMBERS[kind]
  kind = args[a]
  state, is_foreign = state_of(to, kind)
  if is_foreign or not charge_saturating(to, state, kind, a + 1, units) then return fault(to) end
  call('DEL', from)
end
return {args[1] + 0, units}
