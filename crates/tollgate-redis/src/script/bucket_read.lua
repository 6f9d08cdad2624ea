-- One of several buckets: the moment at which it is full again, as found (-1 without a state) and as of now.
local was@, at@ = -1, since * ticks@
local full@ = at@
if found@ then
  if #found@ == 8 then was@ = -read('<i8', found@) end
  if was@ < 0 or was@ >= 9007199254740992 then
    return redis.error_reply('TOLLGATE ' .. (string.match(key@, '^(.-):{') or 'a limit') .. ' FOREIGN')
  end
  if was@ > at@ then full@ = was@ end
end
if full@ - at@ > most@ then took = 0 end
