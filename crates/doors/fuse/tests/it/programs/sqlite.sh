# Four writers in one database at once lose no row.
# $MODE: the kind of journal; $ROWS: how many each of them writes. Where the kind needs no shared memory, two of them
# write through the other mount, $OTHER.
at() { sqlite3 -bail -batch -cmd '.timeout 60000' "$1/rows.db"; }
insert() { seq "$ROWS" | sed "s/.*/insert into t values ($1, &, hex(randomblob(200)));/"; }

test "$(echo "pragma journal_mode=$MODE; create table t (writer, row, text);" | at .)" = "$MODE"
case $MODE in wal) there=. ;; *) there=$OTHER ;; esac
writers=
for writer in 1 2 3 4; do
  case $writer in 1 | 2) dir=. ;; *) dir=$there ;; esac
  { insert "$writer"; echo 'pragma wal_checkpoint;'; } | at "$dir" >/dev/null &
  writers="$writers $!"
done
for writer in $writers; do
  wait "$writer"
done
for dir in . "$there"; do
  said=$(echo 'pragma integrity_check; select count(*), count(distinct writer * 1000 + row) from t;' | at "$dir")
  test "$said" = "ok
$((4 * ROWS))|$((4 * ROWS))"
done
