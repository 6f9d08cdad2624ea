-- Tells that a node is alive. ARGV: tag, node, how long that counts in milliseconds. Returns: tag, how many are alive.
-- Each node stands at the moment until which it counts. One that counts for no time at all has signed off: whoever counts next
-- does not find it.
local key, node, ms = KEYS[1], ARGV[2], ARGV[3] + 0
local call = redis.call
call('ZREMRANGEBYSCORE', key, '-inf', now)
call('ZADD', key, now + ms * MS, node)
if call('PTTL', key) < ms then call('PEXPIRE', key, ms) end
return {ARGV[1] + 0, call('ZCARD', key)}
