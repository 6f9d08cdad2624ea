-- The server's time in microseconds, read once. Ticks of buckets start at the beginning of 2020.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local SINCE, SECOND, MS = 1577836800000000, 1000000, 1000
