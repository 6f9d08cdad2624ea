-- Usage of a state, unconditional charges and refunds. The numbers of a bucket are here: ticks in a unit of time, ticks for one
-- unit of cost, ticks in a full bucket, ticks in a step, the most that may be missing after an unconditional charge, the most
-- that may be missing.
NUMBERS.b = 6

-- The ticks missing from a bucket.
local function backlog(state, a)
  local ticks, depth, most = args[a] + 0, args[a + 2] + 0, args[a + 5] + 0
  local missing = bucket(state, ticks)
  if not missing or missing <= depth then return missing end
  if missing > most + SECOND * (ticks < 0 and -ticks or ticks) then return depth end
  return missing < most and missing or most
end

-- Usage in whole units, rounded up. Nil for a state that no limit wrote.
local function used(key, state, kind, a)
  if kind == 'l' then
    local entries = log(key, a)
    return entries and entries.used
  elseif not state then
    return 0
  elseif kind == 'b' then
    local missing, unit = backlog(state, a), args[a + 1] + 0
    return missing and (missing + (-missing % unit)) / unit
  elseif kind == 's' then
    local cells, into = read_cells(state, a)
    if not cells then return nil end
    local tail, part = args[a + 3], args[a + 1] + 0
    local last = 3 + args[a + 2] * (tail == '0' and 3 or 1)
    local still = cells[last]
    local times, over = still * (part - into), part
    if tail == '0' then
      local at, first, behind = into * args[a + 4], cells[last + 1], cells[last + 2] + 1
      local left = behind * part - at
      if left < 0 then left = 0 end
      if at >= first * part then times, over = still * left, (behind - first) * part else times, over = still, 1 end
    elseif tail ~= '1' then
      times, over = still, 1
    end
    local sum, limit = cells_head(cells, a) + (times + (-times % over)) / over, args[a] + 0
    return sum < limit and sum or limit
  end
  local number, counted = window(state, kind, a)
  return number and counted
end

-- Charges usage that is known afterwards, as far as there is room, a bucket's debt included. Returns the units without room.
local function charge_saturating(key, state, kind, a, cost)
  if kind == 'b' then
    local ticks, unit = args[a] + 0, args[a + 1] + 0
    local missing = backlog(state, a)
    if not missing then return nil end
    local wanted, room = cost * unit, args[a + 4] - missing
    if room < 0 then room = 0 end
    local taken = wanted < room and wanted or room
    if taken > 0 then put_bucket(key, ticks, args[a + 3] + 0, missing + taken) end
    local unpaid = wanted - taken
    return (unpaid + (-unpaid % unit)) / unit
  end
  local limit, room, add = args[a] + 0, nil, nil
  if kind == 'l' then
    local entries = log(key, a)
    if not entries then return nil end
    room = limit - entries.used
    if room <= 0 and entries.back > entries.kept then log_add(key, entries, a, 0) end
    add = function(taken) log_add(key, entries, a, taken) end
  elseif kind == 's' then
    local cells, into, early = read_cells(state, a)
    if not cells then return nil end
    room = limit - cells_head(cells, a)
    -- Permits of the oldest epoch are held like all others.
    if args[a + 3] == '3' then room = room - cells[3 + args[a + 2]] end
    add = function(taken)
      cells_add(cells, a, into, taken)
      put_cells(key, cells, a, early)
    end
  else
    local number, counted, ends = window(state, kind, a)
    if not number then return nil end
    room = limit - counted
    add = function(taken) put(key, number * 4294967296 + counted + taken, ends) end
  end
  if room < 0 then room = 0 end
  local taken = cost < room and cost or room
  if taken > 0 then add(taken) end
  return cost - taken
end

-- These entries of a log with `more` added to their sums. Many are unpacked at once, because a call for each dominates the time.
local function with_sums(entries, more)
  local texts, size = {}, 64 * SIZE
  local format = '>' .. string.rep('I7I5', 64)
  for from = 1, #entries, size do
    local count = 64
    if from + size - 1 > #entries then
      count = (#entries - from + 1) / SIZE
      format = '>' .. string.rep('I7I5', count)
    end
    local numbers = {struct.unpack(format, entries, from)}
    for i = 2, 2 * count, 2 do
      local sum = numbers[i] + more
      numbers[i] = sum < SUMS and sum or sum - SUMS
    end
    texts[#texts + 1] = struct.pack(format, unpack(numbers, 1, 2 * count))
  end
  return table.concat(texts)
end

-- Refunds the entry of `issued`.
--
-- Only the differences of sums count. So the refund is either subtracted from all sums from there on, or added to all before:
-- the smaller number of entries is rewritten. Entries known to be out of the window are not among them, except the last one,
-- which the others are counted from.
local function refund_log(key, a, cost, issued)
  local state = log(key, a)
  if not state then return nil end
  local entries, known, kept = state.entries, state.known, state.kept
  if entries == 0 then return 0 end
  local function stamp_of(i)
    local stamp, sum = log_entry(key, i)
    stamp = stamp - kept
    return stamp > 0 and stamp or 0, sum
  end
  local low, high = known, entries
  while low < high do
    local middle = low + ((high - low) - (high - low) % 2) / 2
    if stamp_of(middle) < issued then low = middle + 1 else high = middle end
  end
  if low >= entries then return 0 end
  local stamp, sum = stamp_of(low)
  if stamp ~= issued then return 0 end
  local before, _ = state.base, nil
  if low > 0 then _, before = log_entry(key, low - 1) end
  local own = (sum - before) % SUMS
  local back = cost < own and cost or own
  local goes = back == own
  if goes and entries - known == 1 then
    -- No entry is left.
    call('DEL', key)
    return 0
  end
  local function range(from, to)
    return from < to and call('GETRANGE', key, HEADED + SIZE * from, HEADED + SIZE * to - 1) or ''
  end
  local function write(place, text)
    if text ~= '' then call('SETRANGE', key, HEADED + SIZE * place, text) end
  end
  local base, empty, first = state.base, state.empty, known > 0 and known - 1 or 0
  if low - first < entries - low then
    local text = with_sums(range(first, low), back)
    base = (base + back) % SUMS
    if goes then
      -- The entries before it move up by one place. The free one is out of the window like those before.
      if known == 0 then write(0, struct.pack(ENTRY, 0, base)) end
      write(first + 1, text)
      known = known + 1
    else
      write(first, text)
    end
  elseif goes then
    write(low, with_sums(range(low + 1, entries), SUMS - back))
    empty = empty + 1
  else
    write(low, with_sums(range(low, entries), SUMS - back))
  end
  call('SETRANGE', key, 0, log_head(known, empty, base, kept))
  return 0
end

-- Refunds a charge of `issued`: a moment for buckets and logs, the number of the window or cell for the others. A state without
-- usage is deleted.
local function refund(key, state, kind, a, cost, issued)
  if kind == 'l' then return refund_log(key, a, cost, issued) end
  if not state then return 0 end
  if kind == 'b' then
    local ticks, missing = args[a] + 0, backlog(state, a)
    if not missing then return nil end
    local per = ticks < 0 and -ticks or ticks
    -- The refill since then would have overflowed a bucket without the charge.
    local refilled = now > issued and (now - issued) * per or 0
    local back = cost * args[a + 1] - refilled
    -- A place in a queue is refunded only if the queue was empty before it and no other place followed: then it is all there is.
    if args[2] == 'q' and missing ~= back then return 0 end
    if back > 0 then
      missing = missing - back
      if missing > 0 then
        put_bucket(key, ticks, args[a + 3] + 0, missing)
      else
        call('DEL', key)
      end
    end
  elseif kind == 's' then
    local cells, _, early = read_cells(state, a)
    if not cells then return nil end
    local width, age = args[a + 3] == '0' and 3 or 1, cells[2] - issued
    if age < 0 or age > args[a + 2] + 0 then return 0 end
    local at = 3 + age * width
    if cells[at] == 0 then return 0 end
    cells[at] = cells[at] > cost and cells[at] - cost or 0
    local sum = 0
    for i = 3, #cells, width do sum = sum + cells[i] end
    if sum > 0 then put_cells(key, cells, a, early) else call('DEL', key) end
  else
    local number, counted, ends = window(state, kind, a)
    if not number then return nil end
    local value = whole(state)
    local kept = (value - value % 4294967296) / 4294967296
    if counted == 0 or kept ~= issued % 2097152 then return 0 end
    if counted > cost then
      put(key, kept * 4294967296 + counted - cost, ends)
    else
      call('DEL', key)
    end
  end
  return 0
end

local function state_of(key, kind)
  if kind == 'l' then return nil end
  local state = redis.pcall('GET', key)
  if type(state) == 'table' then return nil, true end
  return state
end
