starts
mkdir srv/beamline home/results
echo 42 >srv/beamline/run7.h5; chown -R "$uid:$uid" srv home
for name in carla dana erik; do as "$uid" weft user add "$name" --no-password; done
as "$uid" weft mkdir /data /people /people/dana
block 1
block 2
