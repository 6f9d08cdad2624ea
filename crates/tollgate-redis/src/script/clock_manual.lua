-- For tests: the last argument is the time, the one before it the units in a second. Expiries are long enough for a time that
-- does not move during a test.
local now = tonumber(ARGV[#ARGV])
local SINCE, SECOND, MS = 0, tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV - 1]) / 1e9
