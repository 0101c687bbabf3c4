as "$uid" bash -c 'echo wonderland >word'
block 1
trust "$node/tls/cert.pem"
block 2
block 3
block 4
block 5
block 6
block 7
cmp home/work/results/run7.csv home/work/copied/run7.csv
block 8
block 9
