# An editor saves by a rename (`no`) and in place (`yes`), with a backup, and the other mount, $OTHER, shows it.
lines() { yes "an $1 line" | head -n 3000; }
shown() {
  for _ in $(seq 500); do
    if lines new | cmp -s - "$OTHER/text"; then return; fi
    sleep 0.02
  done
  return 1
}

for in_place in no yes; do
  lines old >text
  chmod 640 text
  # The other mount has it in its cache.
  lines old | cmp - "$OTHER/text"
  before=$(stat -c %i text)
  TERM=dumb vim.tiny -u NONE -i NONE -es -c "set nocompatible backup writebackup backupskip= backupdir=. swapfile" \
    -c "set directory=. backupcopy=$in_place" -c '%s/old/new/' -c wq text
  lines new | cmp - text
  lines old | cmp - text~
  case $in_place in
    no) test "$(stat -c %i text)" != "$before" ;;
    yes) test "$(stat -c %i text)" = "$before" ;;
  esac
  test "$(stat -c %a text)" = 640
  shown
  # No swap file stays.
  test "$(ls -A)" = 'text
text~'
done
