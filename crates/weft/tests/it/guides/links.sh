starts
as "$uid" weft mkdir /pdb /pdb/set
echo ATOM >home/1abc.pdb
as "$uid" weft cp "$home/1abc.pdb" weft:/pdb/
sed -i "s|817fb[0-9a-f]*|\$(weft link ls --json \| grep -o '\"id\":\"[^\"]*' \| head -n 1 \| cut -d '\"' -f 4)|" block.1
block 1
