-- The shortest token bucket script in common use: one key, the server's clock, an expiry.
-- ARGV: microseconds that a unit is worth, units, microseconds that a full bucket is worth.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local unit, full = tonumber(ARGV[1]), tonumber(ARGV[3])
local tat = math.max(now, tonumber(redis.call('GET', KEYS[1]) or now)) + unit * tonumber(ARGV[2])
if tat - now > full then return {0, 0, tat - now - full} end
redis.call('SET', KEYS[1], tat, 'PX', math.ceil((tat - now) / 1000))
return {1, math.floor((full - tat + now) / unit), 0}
