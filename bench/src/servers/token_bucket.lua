-- A token bucket in a hash, by the clock of the server: KEYS[1]; burst, tokens, seconds, cost.
-- A common script for Redis: the cost of a limit there without a module.
local burst, tokens, seconds, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local rate = tokens / seconds
local bucket = redis.call('HMGET', KEYS[1], 'level', 'at')
local level = tonumber(bucket[1]) or burst
local at = tonumber(bucket[2]) or now
level = math.min(burst, level + math.max(0, now - at) * rate)
local passes = level >= cost
if passes then
  level = level - cost
end
redis.call('HSET', KEYS[1], 'level', level, 'at', now)
redis.call('EXPIRE', KEYS[1], math.ceil((burst - level) / rate) + 1)
return { passes and 1 or 0, math.floor(level) }
