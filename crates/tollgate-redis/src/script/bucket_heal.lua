-- If the clock was set back, the bucket is as if just emptied, whatever becomes of the request.
if full@ - at@ > depth@ + SECOND * ticks@ then
  local new = at@ + depth@
  local ms = (new - new % step@ + step@ - at@) / (ticks@ * MS)
  call('SET', key@, pack('<i8', -new), 'PX', ms - ms % 1 + 1002)
end
