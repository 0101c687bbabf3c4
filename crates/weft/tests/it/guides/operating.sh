starts
# The guide's directories, where whoever runs it may make them.
mkdir -p home/backups home/stick
chown "$uid" home/backups home/stick
sed -i "s| /tmp/| $home/|g; s|/backups/|$home/backups/|g; s|/var/lib/weft/|$node/|g; s|/media/stick/|$home/stick/|g" block.*
echo ACGT >home/work/hg38.fa
chown "$uid" home/work/hg38.fa
as "$uid" weft mkdir /genomes
as "$uid" weft cp hg38.fa weft:/genomes/hg38.fa
as "$uid" weft backup "$home/backups/monday"
block 1
block 2
block 3
as "$uid" weft down --node "$home/monday"
rm -r "$home/monday"
block 4
as "$uid" weft down --node "$home/monday"
sed -i "s|FILE|$home/stick/root.key|" block.5
block 5
block 6
leaves_out 7 'it is for a machine with podman'
