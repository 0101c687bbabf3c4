starts --https 0.0.0.0:8421
rm home/.curlrc
echo wonderland >home/work/word
chown "$uid" home/work/word
as "$uid" weft mkdir /data
echo f >home/f
as "$uid" weft cp "$home/f" weft:/data/
# There is no terminal to ask at.
sed -i -E 's/^weft user (add bob --uid 1001|passwd) /&--password-stdin <word /' block.1
block 1
as "$uid" weft user enable alice
as "$uid" bash -c 'weft user add carol --uid 1002 --password-stdin <word'
as "$uid" weft acl grant /data alice all
as "$uid" bash -c 'weft login alice --password-stdin <word'
block 2
block 3
sed -i "1i TOKEN=\$(weft token create guide --rights read)" block.4
block 4
cmp home/f home/work/data/f
block 5
as "$uid" weft logout    # whoever made the node stops it
