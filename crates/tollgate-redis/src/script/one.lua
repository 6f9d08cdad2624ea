-- One bucket whose state is a whole number of ticks: the moment at which it is full again.
-- ARGV: tag, ticks in a unit of time, ticks wanted, the most that may be missing before, ticks in a full bucket.
-- Returns: tag, was it taken, now, the state that was found.
local key, wanted = KEYS[1], ARGV[3]
local found = redis.pcall('GET', key)
local ticks = ARGV[2] + 0
local at = (now - SINCE) * ticks
local full = at
if found then
  full = tonumber(found)
  if not full or full < 0 or full >= 9007199254740992 or full % 1 ~= 0 then
    return redis.error_reply('TOLLGATE ' .. key .. ' holds something that no limit wrote: delete it or choose another prefix')
  end
  if full < at then full = at end
end
if full - at <= ARGV[4] + 0 then
  full = full + wanted
  local ms = (full - at) / (ticks * MS)
  redis.call('SET', key, full, 'PX', ms - ms % 1 + 1002)
  return {ARGV[1] + 0, 1, now, found}
end
local depth = ARGV[5] + 0
if full - at > depth + SECOND * ticks then
  -- The clock was set back: the bucket is as if just emptied.
  local ms = depth / (ticks * MS)
  redis.call('SET', key, at + depth, 'PX', ms - ms % 1 + 1002)
end
return {ARGV[1] + 0, 0, now, found}
