-- Any limits: enforced ones all or none; counted ones each by itself, if the enforced ones pass.
-- ARGV: number of the call, charge (1) or peek (0), how many keys hold a single value (logs follow them), how many limits, then
-- for each: kind, role (e enforced, c counted, j counted together with the next), cost (negative if it can never pass), numbers.
-- The cost of a bucket is in ticks; its numbers are: ticks in a unit of time, the most that may be missing before, ticks in a
-- full bucket, ticks in a step, the most that may be missing unless the clock stepped back. Returns: number of the call, whether
-- the charges were taken, now, the state of each limit.
local keys = KEYS
local values, count = args[3] + 0, args[4] + 0
local found = values > 0 and call('MGET', unpack(keys, 1, values)) or {}
local take, passes = args[2] == '1', true
local fits, roles, write, absent = {}, {}, {}, {}
local a = 5
for i = 1, count do
  local kind, role, cost, key, state = args[a], args[a + 1], args[a + 2] + 0, keys[i], found[i]
  local fit, to = true, nil
  a = a + 3
  if kind == 'b' then
    local ticks, depth, step = args[a] + 0, args[a + 2] + 0, args[a + 3] + 0
    local missing = bucket(state, ticks)
    if not missing then return fault(key) end
    local per = ticks < 0 and -ticks or ticks
    if cost < 0 or (cost > 0 and missing > args[a + 1] + 0) then
      fit = false
      if cost > 0 and missing > args[a + 4] + SECOND * per then
        to = function() put_bucket(key, ticks, step, depth) end
      end
    elseif cost > 0 then
      to = function() put_bucket(key, ticks, step, missing + cost) end
    end
    a = a + 5
  elseif kind == 's' then
    local cells, into, early, repaired = read_cells(state, a)
    if not cells then return fault(key) end
    local b = a
    if cost > 0 then
      local room = args[a] - cells_head(cells, a) - cost
      local tail, part = args[a + 3], args[a + 1] + 0
      local last = 3 + args[a + 2] * (tail == '0' and 3 or 1)
      local oldest = cells[last]
      fit = room >= 0
      if fit and oldest > room then
        if tail == '1' then
          fit = oldest * (part - into) <= room * part
        elseif tail == '0' then
          local at, first, behind = into * args[a + 4], cells[last + 1], cells[last + 2] + 1
          local left = behind * part - at
          fit = at >= first * part and (left <= 0 or oldest * left <= room * (behind - first) * part)
        else
          fit = false
        end
      end
      if fit then
        to = function()
          cells_add(cells, b, into, cost)
          put_cells(key, cells, b, early)
        end
      elseif repaired then
        to = function() put_cells(key, cells, b, early) end
      end
    else
      fit = cost == 0
    end
    a = a + 8
  elseif kind == 'l' then
    local entries = log(key, a)
    if not entries then return fault(key) end
    local limit, used, b = args[a] + 0, entries.used, a
    if cost < 0 then
      fit = false
    elseif cost > 0 then
      fit = used + cost <= limit
      if fit then
        to = function() log_add(key, entries, b, cost) end
      elseif entries.back > entries.kept then
        to = function() log_add(key, entries, b, 0) end
      end
    end
    local summary = {used, entries.at}
    if used > 0 then
      local over = used - limit
      if over < 0 then over = 0 end
      local free = used + cost - limit
      if free < 1 then free = 1 end
      if free > used then free = used end
      summary[3] = log_stamp(key, entries, over + 1)
      summary[4] = entries.newest
      summary[5] = free == over + 1 and summary[3] or log_stamp(key, entries, free)
    end
    found[i] = summary
    a = a + 2
  else
    local number, counted, ends, repaired = window(state, kind, a)
    if not number then return fault(key) end
    if cost < 0 then
      fit = false
    elseif cost > 0 then
      fit = counted + cost <= args[a] + 0
      if fit then
        to = function() put(key, number * 4294967296 + counted + cost, ends) end
      elseif repaired then
        to = function() put(key, number * 4294967296 + counted, ends) end
      end
    end
    a = a + NUMBERS[kind]
  end
  if to and not state and kind ~= 'l' then absent[#absent + 1] = key end
  fits[i], roles[i], write[i] = fit, role, to
  if not fit and role == 'e' then passes = false end
end
if take then
  -- A key of another type looks absent to MGET.
  if absent[1] and call('EXISTS', unpack(absent)) > 0 then
    for i = 1, #absent do
      if call('EXISTS', absent[i]) > 0 then return fault(absent[i]) end
    end
  end
  for i = 1, count do
    local to = write[i]
    if to then
      local role = roles[i]
      local pair = role == 'j' and fits[i + 1] or role ~= 'j' and (roles[i - 1] ~= 'j' or fits[i - 1])
      -- A refused charge writes only to repair a state after a backward clock step.
      if not fits[i] or (passes and pair) then to() end
    end
  end
end
return {args[1] + 0, take and passes and 1 or 0, now, found}
