-- Several buckets, all or none.
-- ARGV: tag, then for each key: ticks in a unit of time (below zero if the state is text), ticks wanted, the most that may
-- be missing before, ticks in a full bucket.
-- Returns: tag, were they taken, now, the states that were found.
local keys, args, call = KEYS, ARGV, redis.call
local found = call('MGET', unpack(keys))
local count, since = #keys, now - SINCE
-- As long as most requests need, so that they do not grow.
local took, states, lives, absent = 1, {false, false, false, false}, {false, false, false, false}, nil
local a = 2
for i = 1, count do
  local ticks, wanted, most, state = args[a] + 0, args[a + 1] + 0, args[a + 2] + 0, found[i]
  local as_text = ticks < 0
  if as_text then ticks = -ticks end
  local missing = 0
  if state then
    if as_text then
      local whole, rest = string.match(state, '^(%d+):(%d+)$')
      missing = whole and (whole - since) * ticks + rest
    else
      local full = tonumber(state)
      missing = full and full >= 0 and full < 9007199254740992 and full % 1 == 0 and full - since * ticks
    end
    if not missing then
      return redis.error_reply('TOLLGATE ' .. keys[i] .. ' holds something that no limit wrote: delete it or choose another prefix')
    end
    if missing < 0 then missing = 0 end
  else
    absent = absent or {}
    absent[#absent + 1] = keys[i]
  end
  local write
  if missing <= most then
    if wanted > 0 then write = missing + wanted end
  else
    took = 0
    local depth = args[a + 3] + 0
    if missing > depth + SECOND * ticks then
      -- The clock was set back: the bucket is as if just emptied, whatever becomes of the request.
      write = depth
      lives[i] = -1
    end
  end
  if write then
    if as_text then
      states[i] = string.format('%.0f:%.0f', since + (write - write % ticks) / ticks, write % ticks)
    else
      states[i] = since * ticks + write
    end
    local ms = write / (ticks * MS)
    ms = ms - ms % 1 + 1002
    lives[i] = lives[i] and -ms or ms
  end
  a = a + 4
end
-- A key that holds no string looks absent to MGET.
if took == 1 and absent and call('EXISTS', unpack(absent)) > 0 then
  return redis.error_reply('TOLLGATE ' .. table.concat(absent, ' or ') .. ' holds something that no limit wrote: delete it or choose another prefix')
end
for i = 1, count do
  local ms = lives[i]
  if ms then
    if ms < 0 then
      call('SET', keys[i], states[i], 'PX', -ms)
    elseif took == 1 then
      call('SET', keys[i], states[i], 'PX', ms)
    end
  end
end
return {args[1] + 0, took, now, found}
