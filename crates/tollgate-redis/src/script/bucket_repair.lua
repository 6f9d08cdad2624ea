-- After a backward clock step the bucket counts as just emptied, whatever the verdict.
if full@ - at@ > beyond@ + SECOND * ticks@ then
  local new = at@ + depth@
  local ms = (new - new % step@ + step@ - at@) / (ticks@ * MS)
  call('SET', key@, pack('<i8', -new), 'PX', ms - ms % 1 + 1002)
end
