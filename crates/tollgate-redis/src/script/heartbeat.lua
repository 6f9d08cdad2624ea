-- Reports that a node is alive, and agrees on the secret of the fleet. ARGV: number of the call, node, milliseconds until the
-- heartbeat expires (0 to sign off), the secret that this node would use.
-- Returns: number of the call, how many nodes are alive, the secret. The score of a node is the moment at which its heartbeat
-- expires. A secret that the server lost is the next node's again, so it survives a reset.
local key, node, ms = KEYS[1], ARGV[2], ARGV[3] + 0
local call = redis.call
call('ZREMRANGEBYSCORE', key, '-inf', now)
call('ZADD', key, now + ms * MS, node)
if call('PTTL', key) < ms then call('PEXPIRE', key, ms) end
local secret = call('GET', KEYS[2])
if secret then
  call('PEXPIRE', KEYS[2], 3600000)
else
  secret = ARGV[4]
  if secret ~= '' then call('SET', KEYS[2], secret, 'PX', 3600000) end
end
return {ARGV[1] + 0, call('ZCARD', key), secret}
