-- Reports that a node is alive. ARGV: number of the call, node, milliseconds until the heartbeat expires (0 to sign off).
-- Returns: number of the call, how many nodes are alive. The score of a node is the moment at which its heartbeat expires.
local key, node, ms = KEYS[1], ARGV[2], ARGV[3] + 0
local call = redis.call
call('ZREMRANGEBYSCORE', key, '-inf', now)
call('ZADD', key, now + ms * MS, node)
if call('PTTL', key) < ms then call('PEXPIRE', key, ms) end
return {ARGV[1] + 0, call('ZCARD', key)}
