starts --https 0.0.0.0:8421
as "$uid" weft mkdir /bio
seq 300000 >home/work/run9.dat
sed -i "1i TOKEN=\$(weft token create guide --rights all)" block.1
block 1
as "$uid" bash -c 'weft cp weft:/bio/run9.dat back'
cmp home/work/run9.dat home/work/back
