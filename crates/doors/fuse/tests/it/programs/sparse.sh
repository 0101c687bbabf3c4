# cp makes holes, finds them and fills them: two islands in 16 MiB.
blocks() { stat -c %b "$1"; }
truncate -s 16M "$OUT/f"
seq 5000 | dd of="$OUT/f" bs=1M seek=3 conv=notrunc status=none
seq 20000 | dd of="$OUT/f" bs=1M seek=11 conv=notrunc status=none

cp --sparse=never "$OUT/f" full
cp --sparse=always full made
cp --sparse=auto made found
cp found "$OUT/back"
for copy in full made found "$OUT/back"; do
  cmp "$OUT/f" "$copy"
done
test "$(blocks full)" -ge 32768
for copy in made found "$OUT/back"; do
  test "$(blocks "$copy")" -ge 1
  test "$(blocks "$copy")" -lt 2048
done
