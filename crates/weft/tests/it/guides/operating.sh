starts
block 1
block 2
leaves_out 3 'it is for a machine with podman'
