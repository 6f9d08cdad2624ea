-- Forgets what is counted for a key. ARGV: number of the call. Returns: number of the call, how many keys there were.
return {ARGV[1] + 0, redis.call('DEL', KEYS[1])}
