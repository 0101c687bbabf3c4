starts
as "$uid" bash -c 'printf x | weft cp - weft:/report.txt && weft mkdir /plans'
as "$uid" weft user add bob --no-password
block 1 | tee out
grep -q '^node  *answers$' out
as "$uid" sh -c 'chmod 0400 ~/weft/report.txt; ! echo y >~/weft/report.txt'
block 2 | tee out
test "$(grep -c '^kind: denied$' out)" = 2
block 3
as "$uid" weft acl show /plans | grep -q 'allow  *bob  *read'
block 4
as "$uid" sh -c 'ls ~/plans && ! mkdir ~/plans/new 2>/dev/null'
as "$uid" sh -c 'weft umount ~/plans'
block 5 | tee out
if grep -q 'a look' out; then exit 1; fi
as "$uid" sh -c '! mountpoint -q ~/weft'
