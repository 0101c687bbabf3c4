starts
block 1
