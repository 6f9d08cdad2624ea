-- Time is divided into steps. A key expires a second after the step of the moment that it holds. So a moment of the same step
-- can be written without a new expiry, which is much cheaper.
local new@ = full@ + wanted@
local into@ = new@ % step@
if was@ >= new@ - into@ then
  call('SETRANGE', key@, '0', pack('<i8', -new@))
else
  local ms = (new@ - into@ + step@ - at@) / (ticks@ * MS)
  call('SET', key@, pack('<i8', -new@), 'PX', ms - ms % 1 + 1002)
end
