-- Moves usage from the limit that it was to the one that it is.
-- ARGV: tag, how many keys the old limit has (they come first), then for each key: kind, numbers.
-- Returns: tag, the units that were moved.
local olds, a, sum = args[2] + 0, 3, 0
for i = 1, #KEYS do
  local key, kind = KEYS[i], args[a]
  if i > olds and sum == 0 then break end
  local state, strange = state_of(key, kind)
  if strange then return fault(key) end
  if i <= olds then
    local units = used(key, state, kind, a + 1)
    if not units then return fault(key) end
    if units > sum then sum = units end
  else
    if not force(key, state, kind, a + 1, sum) then return fault(key) end
  end
  a = a + 1 + NUMBERS[kind]
end
if sum > 0 then call('DEL', unpack(KEYS, 1, olds)) end
return {args[1] + 0, sum}
