-- How each kind of limit keeps its state, and what that comes to now. A kind is a letter, followed by its numbers:
--   b  bucket:   ticks in a unit of time (below zero if the state is text), then what the script says
--   w  window:   limit, length, start of the first
--   c  calendar: limit, number of a period, its start, its end, the end of the next
--   s  parts:    limit, length of a part, parts before the current one, tail, divisions, most in a count, unit, format
--   l  log:      limit, window
-- Readers return nil for a state that no limit wrote.
local args, call = ARGV, redis.call

local function foreign(key)
  return redis.error_reply('TOLLGATE ' .. key .. ' holds something that no limit wrote: delete it or choose another prefix')
end

local function whole(state)
  local number = tonumber(state)
  return number and number >= 0 and number < 9007199254740992 and number % 1 == 0 and number or nil
end

local function put(key, state, time)
  local ms = time / MS
  call('SET', key, state, 'PX', ms - ms % 1 + 1002)
end

-- Ticks that are missing from a full bucket. A state that is a number is kept below zero, in eight bytes: the last one is
-- then one that no text ends with.
local function bucket(state, ticks)
  if not state then return 0 end
  local missing
  if ticks < 0 then
    local q, f = string.match(state, '^(%d+):(%d+)$')
    if not q then return nil end
    missing = (q - (now - SINCE)) * -ticks + f
  else
    local full = #state == 8 and -struct.unpack('<i8', state) or -1
    if full < 0 or full >= 9007199254740992 then return nil end
    missing = full - (now - SINCE) * ticks
  end
  return missing > 0 and missing or 0
end

-- Writes a bucket. One that is a number lives until its step is over: see `bucket_write.lua`.
local function put_bucket(key, ticks, step, missing)
  if ticks > 0 then
    local at = (now - SINCE) * ticks
    local full = at + missing
    put(key, struct.pack('<i8', -full), (full - full % step + step - at) / ticks)
  else
    ticks = -ticks
    local text = string.format('%.0f:%.0f', now - SINCE + (missing - missing % ticks) / ticks, missing % ticks)
    put(key, text, missing / ticks)
  end
end

-- The number of the window in force, its count, the time until it ends, and whether the clock was set back.
local function window(state, kind, a)
  local number, ends, length
  if kind == 'w' then
    length = args[a + 1] + 0
    local t = now - args[a + 2]
    local into = t % length
    number, ends = (t - into) / length + 1, length - into
  else
    local from, to, next = args[a + 2] + 0, args[a + 3] + 0, args[a + 4] + 0
    number = args[a + 1] + 0
    if now < from then
      number, ends, length = number - 1, from - now, to - from
    elseif now < to then
      ends, length = to - now, next - to
    else
      number, ends, length = number + 1, next - now, next - to
      if ends <= 0 then ends = length end
    end
  end
  number = number % 2097152
  local count, healed = 0, false
  if state then
    local value = whole(state)
    if not value then return nil end
    count = value % 4294967296
    local ahead = (number - (value - count) / 4294967296) % 2097152
    if ahead == 2097151 then
      number, ends = (number + 1) % 2097152, ends + length
    elseif ahead >= 1048576 then
      healed = true
    elseif ahead > 0 then
      count = 0
    end
  end
  return number, count, ends, healed
end

-- The parts in force: a mark, the number of the current part, then for each part from the newest its count (and with a
-- span its first and last division). Also the offset into the current part, the time until it begins, and whether the
-- clock was set back.
local function parts(state, a)
  local part, before, most, unit, format = args[a + 1] + 0, args[a + 2] + 0, args[a + 5] + 0, args[a + 6] + 0, args[a + 7]
  local width = args[a + 3] == '0' and 3 or 1
  local t = (now - now % unit) / unit
  local into = t % part
  local index = (t - into) / part
  local last = 2 + (before + 1) * width
  local cells, early, healed = {181, index}, 0, false
  for i = 3, last do cells[i] = 0 end
  if state then
    if #state ~= struct.size(format) then return nil end
    local old = {struct.unpack(format, state)}
    if old[1] ~= 181 then return nil end
    local ahead = index - old[2]
    local shift = 0
    if ahead >= 0 then
      shift = ahead * width
    elseif ahead == -1 then
      cells[2], early, into = old[2], part - into, 0
    else
      healed = true
    end
    for i = 3 + shift, last do cells[i] = old[i - shift] end
    for i = 3, last, width do
      if cells[i] > most then cells[i] = most end
    end
  end
  return cells, into, early, healed
end

-- What the parts but the oldest count.
local function parts_head(cells, a)
  local width, head = args[a + 3] == '0' and 3 or 1, 0
  for i = 0, args[a + 2] - 1 do head = head + cells[3 + i * width] end
  return head
end

local function parts_add(cells, a, into, cost)
  if args[a + 3] == '0' then
    local at = into * args[a + 4]
    local part = args[a + 1] + 0
    local division = (at - at % part) / part
    if cells[3] == 0 then
      cells[4], cells[5] = division, division
    else
      if division < cells[4] then cells[4] = division end
      if division > cells[5] then cells[5] = division end
    end
  end
  cells[3] = cells[3] + cost
end

local function put_parts(key, cells, a, early)
  local time = ((args[a + 2] + 1) * args[a + 1] + early) * args[a + 6]
  put(key, struct.pack(args[a + 7], unpack(cells)), time)
end

-- A log is a string of 12 byte entries: a head (a mark, how many entries are known to be out of the window, the sum
-- before the first entry) and for each moment at which something was taken the moment and the sum up to it. Sums wrap.
local SUMS, HEAD, ENTRY = 1099511627776, '>BI4I7', '>I7I5'

local function log_entry(key, i)
  local stamp, sum = struct.unpack(ENTRY, call('GETRANGE', key, 12 + 12 * i, 23 + 12 * i))
  return stamp, sum
end

-- What a log comes to now; `used` is 0 if there is none.
local function log(key, a)
  local span = args[a + 1] + 0
  local head = redis.pcall('GETRANGE', key, 0, 11)
  if type(head) == 'table' then return nil end
  if head == '' then
    -- Absent, or an empty string of somebody else's.
    if call('EXISTS', key) > 0 then return nil end
    return {used = 0, at = now, entries = 0, shift = 0}
  end
  local entries = (call('STRLEN', key) - 12) / 12
  if #head ~= 12 or entries % 1 ~= 0 or entries < 1 then return nil end
  local mark, out, base = struct.unpack(HEAD, head)
  if mark ~= 183 or out >= entries then return nil end
  local newest, sum = log_entry(key, entries - 1)
  local at, shift = now, 0
  if newest > now then
    if newest - now <= span then at = newest else shift = newest - now end
  end
  local function is_out(i)
    local stamp = log_entry(key, i) - shift
    if stamp < 0 then stamp = 0 end
    return at - stamp >= span
  end
  -- The first that is in the window: ever longer steps, then halving.
  local low, high, step = out, out, 1
  while high < entries and is_out(high) do
    low, high, step = high + 1, high + step, step * 2
  end
  if high > entries then high = entries end
  while low < high do
    local middle = low + ((high - low) - (high - low) % 2) / 2
    if is_out(middle) then low = middle + 1 else high = middle end
  end
  local before = base
  if low > 0 then
    local _
    _, before = log_entry(key, low - 1)
  end
  return {used = (sum - before) % SUMS, at = at, shift = shift, entries = entries, known = out, out = low,
    before = before, base = base, sum = sum, newest = newest}
end

-- The moment of the unit that is `nth` from the oldest in the window.
local function log_stamp(key, state, nth)
  local low, high = state.out, state.entries - 1
  while low < high do
    local middle = low + ((high - low) - (high - low) % 2) / 2
    local _, sum = log_entry(key, middle)
    if (sum - state.before) % SUMS >= nth then high = middle else low = middle + 1 end
  end
  local stamp = log_entry(key, low) - state.shift
  return stamp > 0 and stamp or 0
end

-- Takes `cost` more, and makes good that the clock was set back.
local function log_add(key, state, a, cost)
  local time = args[a + 1] + (state.at - now)
  if state.used == 0 then
    if cost > 0 then put(key, struct.pack('>BI4I7I7I5', 183, 0, 0, state.at, cost), time) end
    return
  end
  local sum = (state.sum + cost) % SUMS
  if state.shift > 0 then
    -- What is out of the window goes only when something is added: until then it could still be in it again.
    local from, bytes = 0, {struct.pack(HEAD, 183, state.known, state.base)}
    if cost > 0 then from, bytes = state.out, {struct.pack(HEAD, 183, 0, state.before)} end
    for i = from, state.entries - 1 do
      local stamp, upto = log_entry(key, i)
      stamp = stamp - state.shift
      bytes[#bytes + 1] = struct.pack(ENTRY, stamp > 0 and stamp or 0, upto)
    end
    -- The newest was moved to now.
    if cost > 0 then bytes[#bytes] = struct.pack(ENTRY, state.at, sum) end
    put(key, table.concat(bytes), time)
    return
  end
  if cost == 0 then return end
  local entry = struct.pack(ENTRY, state.at, sum)
  if state.out > 32 and state.out * 2 > state.entries then
    local rest = call('GETRANGE', key, 12 + 12 * state.out, state.newest == state.at and -13 or -1)
    put(key, struct.pack(HEAD, 183, 0, state.before) .. rest .. entry, time)
    return
  end
  if state.newest == state.at then
    call('SETRANGE', key, 12 * state.entries, entry)
  else
    call('APPEND', key, entry)
  end
  if state.out ~= state.known then
    call('SETRANGE', key, 0, struct.pack(HEAD, 183, state.out, state.base))
  end
  local ms = time / MS
  call('PEXPIRE', key, ms - ms % 1 + 1002)
end

-- How many numbers each kind has.
local NUMBERS = {w = 3, c = 5, s = 8, l = 2}
