starts
as "$uid" weft mkdir /lab
echo 1,2 >home/work/results.csv
block 1
