-- Records that an identifier is used. ARGV: number of the call, milliseconds until it is forgotten.
-- Returns: number of the call, 1, or 0 if it was recorded before.
local is_first = redis.call('SET', KEYS[1], '1', 'NX', 'PX', ARGV[2])
return {ARGV[1] + 0, is_first and 1 or 0}
