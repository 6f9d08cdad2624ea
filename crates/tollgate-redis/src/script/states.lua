-- How each kind of limit keeps its state, and what that comes to now. A kind is a letter, followed by its numbers:
--   b  bucket:   ticks in a unit of time (below zero if the state is text), then what the script says
--   w  window:   limit, length, start of the first
--   c  calendar: limit, number of a period, its start, its end, the end of the next
--   s  parts:    limit, length of a part, parts before the current one, tail, divisions, most in a count, unit, format
--   l  log:      limit, window
-- Readers return nil for a state that no limit wrote.
local args, call = ARGV, redis.call

-- What a limit's keys begin with: what comes behind may be a secret, and an error is written to logs.
local function limit_of(key) return string.match(key, '^(.-):{') or 'a limit' end

-- Set if a reader returned nil because the clocks differ.
local apart = false

-- The error for a reader that returned nil.
local function fault(key)
  if apart then
    return redis.error_reply('TOLLGATE-CLOCK ' .. limit_of(key) .. ' has periods that lie elsewhere: the clock of the node and that of the store differ by more than a period; set the one that is wrong')
  end
  return redis.error_reply('TOLLGATE ' .. limit_of(key) .. ' FOREIGN')
end

-- A number as a limit writes it: digits and nothing else, no zero before them.
local function whole(digits)
  if #digits > 16 or not string.find(digits, '^[1-9]%d*$') and digits ~= '0' then return nil end
  local number = digits + 0
  return number < 9007199254740992 and number or nil
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
    local q, f = string.match(state, '^([^:]*):([^:]*)$')
    q, f = q and whole(q), q and whole(f)
    if not q or not f or f >= -ticks then return nil end
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
    -- The node knows these periods and no others. Elsewhere any number would be a guess, and a wrong one would
    -- begin everybody's period anew.
    if now < from - (to - from) or now >= next then
      apart = true
      return nil
    end
    if now < from then
      number, ends, length = number - 1, from - now, to - from
    elseif now < to then
      ends, length = to - now, next - to
    else
      number, ends, length = number + 1, next - now, next - to
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

-- A log is a string: a head, and for each moment at which something was taken an entry of the moment and the sum up to
-- it. Sums wrap. The head is a mark, how many entries are known to be out of the window (they are not looked at again, but
-- for the sum of the last), how many places at the end are empty, the sum before the first entry, and by how much the
-- clock was set back. Moments are kept on the clock as it was before that, so that no entry need be touched.
local SUMS, HEAD, HEADED, ENTRY, SIZE = 1099511627776, '>BI4I4I5I7', 21, '>I7I5', 12

local function log_head(known, empty, base, back) return struct.pack(HEAD, 183, known, empty, base, back) end

-- The moment as it is kept, and the sum.
local function log_entry(key, i)
  local from = HEADED + SIZE * i
  local stamp, sum = struct.unpack(ENTRY, call('GETRANGE', key, from, from + SIZE - 1))
  return stamp, sum
end

-- What a log comes to now; `used` is 0 if there is none. `kept` is by how much the clock was set back as the log has it,
-- `back` as it is.
local function log(key, a)
  local span = args[a + 1] + 0
  local head = redis.pcall('GETRANGE', key, 0, HEADED - 1)
  if type(head) == 'table' then return nil end
  if head == '' then
    -- Absent, or an empty string of somebody else's.
    if call('EXISTS', key) > 0 then return nil end
    return {used = 0, at = now, entries = 0, kept = 0, back = 0}
  end
  if #head ~= HEADED then return nil end
  local mark, known, empty, base, kept = struct.unpack(HEAD, head)
  local entries = (call('STRLEN', key) - HEADED) / SIZE - empty
  if mark ~= 183 or entries % 1 ~= 0 or known >= entries then return nil end
  local newest, sum = log_entry(key, entries - 1)
  local at, back = now, kept
  newest = newest - kept
  if newest > now then
    if newest - now <= span then at = newest else newest, back = now, kept + newest - now end
  end
  local function is_out(i)
    local stamp = log_entry(key, i) - back
    if stamp < 0 then stamp = 0 end
    return at - stamp >= span
  end
  -- The first that is in the window: ever longer steps, then halving.
  local low, high, step = known, known, 1
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
  return {used = (sum - before) % SUMS, at = at, kept = kept, back = back, entries = entries, empty = empty, known = known, out = low,
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
  local stamp = log_entry(key, low) - state.back
  return stamp > 0 and stamp or 0
end

-- Takes `cost` more, and makes good that the clock was set back.
local function log_add(key, state, a, cost)
  local time = args[a + 1] + (state.at - now)
  if state.used == 0 then
    if cost > 0 then put(key, log_head(0, 0, 0, 0) .. struct.pack(ENTRY, state.at, cost), time) end
    return
  end
  -- What is out of the window goes only when something is added: until then it could still be in it again.
  local known, empty = state.known, state.empty
  if cost > 0 then
    known = state.out
    local entry, again = struct.pack(ENTRY, state.at + state.back, (state.sum + cost) % SUMS), state.newest == state.at
    local behind = HEADED + SIZE * (again and state.entries - 1 or state.entries)
    if known > 32 and known * 2 > state.entries then
      local from = HEADED + SIZE * known
      local rest = behind > from and call('GETRANGE', key, from, behind - 1) or ''
      put(key, log_head(0, 0, state.before, state.back) .. rest .. entry, time)
      return
    end
    call('SETRANGE', key, behind, entry)
    if not again and empty > 0 then empty = empty - 1 end
  elseif state.back == state.kept then
    return
  end
  if known ~= state.known or empty ~= state.empty or state.back ~= state.kept then
    call('SETRANGE', key, 0, log_head(known, empty, state.base, state.back))
  end
  local ms = time / MS
  call('PEXPIRE', key, ms - ms % 1 + 1002)
end

-- How many numbers each kind has.
local NUMBERS = {w = 3, c = 5, s = 8, l = 2}
