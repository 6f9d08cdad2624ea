-- The state of each kind of limit, read as of now. A kind is a letter, followed by its numbers:
--   b  bucket:   ticks in a unit of time (negative if the state is text), then the numbers of the script
--   w  window:   limit, length, start of the first
--   c  calendar: limit, number of a period, its start, its end, the end of the next
--   s  sliding:  limit, length of a cell, cells before the current one, tail, divisions, largest count, unit, format
--   l  log:      limit, window
-- Readers return nil for a state that no limit wrote.
local args, call = ARGV, redis.call

-- The part of a key's name that names the limit. The rest may be a secret, and errors go to logs.
local function limit_of(key) return string.match(key, '^(.-):{') or 'a limit' end

-- Whether a reader returned nil because the clocks differ.
local clocks_differ = false

-- The error for a reader that returned nil.
local function fault(key)
  if clocks_differ then
    return redis.error_reply('TOLLGATE-CLOCK ' .. limit_of(key) .. ' has other periods now: the clocks of the node and of the store differ by more than a period; fix the wrong one')
  end
  return redis.error_reply('TOLLGATE ' .. limit_of(key) .. ' FOREIGN')
end

-- A number as a limit writes it: only digits, without leading zeros.
local function whole(digits)
  if #digits > 16 or not string.find(digits, '^[1-9]%d*$') and digits ~= '0' then return nil end
  local number = digits + 0
  return number < 9007199254740992 and number or nil
end

local function put(key, state, time)
  local ms = time / MS
  call('SET', key, state, 'PX', ms - ms % 1 + 1002)
end

-- Ticks missing from a full bucket. A state that is a number is negative, in eight bytes: no text ends with its last byte.
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

-- Writes a bucket. A number expires with its step: see `bucket_write.lua`.
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

-- The number of the present window, its count, the time until it ends, and whether a backward clock step was repaired.
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
    -- The node sent these periods and no others. Outside of them any number would be a guess, and a wrong one would start the
    -- period of all keys anew.
    if now < from - (to - from) or now >= next then
      clocks_differ = true
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
  local count, repaired = 0, false
  if state then
    local value = whole(state)
    if not value then return nil end
    count = value % 4294967296
    local ahead = (number - (value - count) / 4294967296) % 2097152
    if ahead == 2097151 then
      number, ends = (number + 1) % 2097152, ends + length
    elseif ahead >= 1048576 then
      repaired = true
    elseif ahead > 0 then
      count = 0
    end
  end
  return number, count, ends, repaired
end

-- The cells of a sliding window: a mark, the number of the current cell, then for each cell from the newest its count (and with a
-- span its first and last division). Also the offset into the current cell, the time until it begins, and whether a backward
-- clock step was repaired.
local function read_cells(state, a)
  local part, before, most, unit, format = args[a + 1] + 0, args[a + 2] + 0, args[a + 5] + 0, args[a + 6] + 0, args[a + 7]
  local width = args[a + 3] == '0' and 3 or 1
  local t = (now - now % unit) / unit
  local into = t % part
  local index = (t - into) / part
  local last = 2 + (before + 1) * width
  local cells, early, repaired = {181, index}, 0, false
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
      repaired = true
    end
    for i = 3 + shift, last do cells[i] = old[i - shift] end
    for i = 3, last, width do
      if cells[i] > most then cells[i] = most end
    end
  end
  return cells, into, early, repaired
end

-- The sum of all cells but the oldest.
local function cells_head(cells, a)
  local width, head = args[a + 3] == '0' and 3 or 1, 0
  for i = 0, args[a + 2] - 1 do head = head + cells[3 + i * width] end
  return head
end

local function cells_add(cells, a, into, cost)
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

local function put_cells(key, cells, a, early)
  local time = ((args[a + 2] + 1) * args[a + 1] + early) * args[a + 6]
  put(key, struct.pack(args[a + 7], unpack(cells)), time)
end

-- A log is a string: a head, and for each moment of charges an entry of the moment and the sum up to it. Sums wrap. The head is a
-- mark, how many entries are known to be out of the window (only the sum of the last is read again), how many places at the end
-- are empty, the sum before the first entry, and the size of backward clock steps. Moments are kept on the clock before those
-- steps, so that no entry has to be rewritten.
local SUMS, HEAD, HEADED, ENTRY, SIZE = 1099511627776, '>BI4I4I5I7', 21, '>I7I5', 12

local function log_head(known, empty, base, back) return struct.pack(HEAD, 183, known, empty, base, back) end

-- The moment as stored, and the sum.
local function log_entry(key, i)
  local from = HEADED + SIZE * i
  local stamp, sum = struct.unpack(ENTRY, call('GETRANGE', key, from, from + SIZE - 1))
  return stamp, sum
end

-- A log as of now; `used` is 0 if there is none. `kept` is the size of backward clock steps as stored, `back` as of now.
local function log(key, a)
  local span = args[a + 1] + 0
  local head = redis.pcall('GETRANGE', key, 0, HEADED - 1)
  if type(head) == 'table' then return nil end
  if head == '' then
    -- Absent, or an empty string that no limit wrote.
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
  -- The first entry in the window: doubling steps, then bisection.
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

-- The moment of the `nth` unit in the window, from the oldest.
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

-- Adds `cost`, and stores a backward clock step.
local function log_add(key, state, a, cost)
  local time = args[a + 1] + (state.at - now)
  if state.used == 0 then
    if cost > 0 then put(key, log_head(0, 0, 0, 0) .. struct.pack(ENTRY, state.at, cost), time) end
    return
  end
  -- Entries out of the window are dropped only when one is added: until then a clock step could bring them back.
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

-- The number of numbers of each kind.
local NUMBERS = {w = 3, c = 5, s = 8, l = 2}
