-- Any number of buckets, all or none, with states that are numbers or text.
-- ARGV: number of the call; then in one argument of numbers of eight bytes, for each key: ticks in a unit of time (negative if
-- the state is text), ticks of the charge, the most that may be missing before, ticks in a step; then for each: ticks in a full
-- bucket; then for each: the most that may be missing unless the clock stepped back. Returns: number of the call, whether the
-- charges were taken, now, the states that were found.
local keys, call, read, pack = KEYS, redis.call, struct.unpack, struct.pack
local count, numbers, since = #keys, ARGV[2], now - SINCE
local found = call('MGET', unpack(keys))

-- The error for a key with another value. The rest of its name, after the limit, may be a secret.
local function foreign(key)
  return redis.error_reply('TOLLGATE ' .. (string.match(key, '^(.-):{') or 'a limit') .. ' FOREIGN')
end

-- Writes a bucket with this many ticks missing; see `bucket_write.lua`.
local function put(key, state, ticks, step, missing)
  if ticks < 0 then
    ticks = -ticks
    local text = string.format('%.0f:%.0f', since + (missing - missing % ticks) / ticks, missing % ticks)
    local ms = missing / (ticks * MS)
    call('SET', key, text, 'PX', ms - ms % 1 + 1002)
    return
  end
  local at = since * ticks
  local new = at + missing
  local from = new - new % step
  if state and -read('<i8', state) >= from then
    call('SETRANGE', key, '0', pack('<i8', -new))
  else
    local ms = (from + step - at) / (ticks * MS)
    call('SET', key, pack('<i8', -new), 'PX', ms - ms % 1 + 1002)
  end
end

-- Large enough for most requests, so that the table does not grow.
local took, missing, absent = 1, {0, 0, 0, 0, 0, 0}, nil
for i = 1, count do
  local ticks, _, most = read('<i8i8i8', numbers, i * 32 - 31)
  local state, gone = found[i], 0
  if not state then
    absent = absent or {}
    absent[#absent + 1] = keys[i]
  else
    if ticks < 0 then
      local whole, rest = string.match(state, '^(%d+):(%d+)$')
      -- Exactly as written by a limit.
      local plain = whole and #whole <= 16 and rest + 0 < -ticks and state == string.format('%.0f:%.0f', whole, rest)
      gone = plain and whole + 0 < 9007199254740992 and (whole - since) * -ticks + rest
    else
      local full = #state == 8 and -read('<i8', state)
      gone = full and full >= 0 and full < 9007199254740992 and full - since * ticks
    end
    if not gone then return foreign(keys[i]) end
    if gone < 0 then gone = 0 end
  end
  missing[i] = gone
  if gone > most then took = 0 end
end
-- A key of another type looks absent to MGET.
if took == 1 and absent and call('EXISTS', unpack(absent)) > 0 then
  for i = 1, #absent do
    if call('EXISTS', absent[i]) > 0 then return foreign(absent[i]) end
  end
end
for i = 1, count do
  local ticks, wanted, most, step = read('<i8i8i8i8', numbers, i * 32 - 31)
  if took == 1 then
    if wanted > 0 then put(keys[i], found[i], ticks, step, missing[i] + wanted) end
  elseif missing[i] > most then
    local depth, beyond = read('<i8', numbers, count * 32 + i * 8 - 7), read('<i8', numbers, count * 40 + i * 8 - 7)
    -- After a backward clock step the bucket counts as just emptied, whatever the verdict.
    if missing[i] > beyond + SECOND * (ticks < 0 and -ticks or ticks) then put(keys[i], nil, ticks, step, depth) end
  end
end
return {ARGV[1] + 0, took, now, found}
