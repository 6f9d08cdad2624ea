-- Time is divided into steps. A key lives until the step of the moment that it holds is over, and a second; so a moment of
-- the same step can be written in its place, and its life is long enough as it is. That is much cheaper than to set it.
local new@ = full@ + wanted@
local into@ = new@ % step@
if was@ >= new@ - into@ then
  call('SETRANGE', key@, '0', pack('<i8', -new@))
else
  local ms = (new@ - into@ + step@ - at@) / (ticks@ * MS)
  call('SET', key@, pack('<i8', -new@), 'PX', ms - ms % 1 + 1002)
end
