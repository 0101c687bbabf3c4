sed -i "s|DIR/|$node/|" block.1
rm home/.curlrc    # who has no account is refused (401), and told so over TLS
block 1
leaves_out 2 'it is for programs that fail'
