//! nginx as its manual would have it for this machine: two workers, `sendfile`, a
//! buffered access log, uploads of any size.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use super::Server;
use crate::Result;
use crate::machine;

/// Starts nginx over `root`, which it serves and takes PUT into. With `durable` it runs
/// under the shim that flushes file and directory before it answers.
pub fn start(place: &Path, root: &Path, durable: bool) -> Result<Server> {
    begin(place, root, durable, "")
}

/// The same over TLS 1.3, with one suite, and a certificate and its key.
pub fn start_secured(
    place: &Path,
    root: &Path,
    (certificate, key): (&Path, &Path),
    suite: &str,
) -> Result<Server> {
    let (certificate, key) = (certificate.display(), key.display());
    let tls = format!(
        "ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_protocols TLSv1.3; \
         ssl_conf_command Ciphersuites {suite};"
    );
    begin(place, root, false, &tls)
}

fn begin(place: &Path, root: &Path, durable: bool, tls: &str) -> Result<Server> {
    let binary = machine::program("nginx", "nginx-light")?;
    let port = machine::free_port()?;
    let file = place.join(format!("nginx-{port}.conf"));
    std::fs::write(&file, configuration(place, root, port, tls)?)?;
    let mut command = Command::new(binary);
    // Its default log is root's: said before it reads the configuration.
    command.arg("-e").arg(place.join(format!("nginx-{port}.err"))).arg("-c").arg(&file);
    if durable {
        command.env("LD_PRELOAD", super::program::library("syncshim")?);
    }
    Server::start(&mut command, port)
}

fn configuration(place: &Path, root: &Path, port: u16, tls: &str) -> Result<String> {
    let ssl = if tls.is_empty() { "" } else { " ssl http2" };
    let (place, root) = (place.display(), root.display());
    let mut text = String::new();
    // As root it would drop to nobody and own nothing here.
    if machine::is_root() {
        writeln!(text, "user root;")?;
    }
    writeln!(
        text,
        "worker_processes 2; worker_rlimit_nofile 65536; daemon off; pid {place}/nginx-{port}.pid; error_log {place}/nginx-{port}.err;\n\
         events {{ worker_connections 16384; }}\n\
         http {{\n\
           sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_requests 100000000; keepalive_timeout 600s;\n\
           access_log {place}/nginx-{port}.log combined buffer=64k flush=1s;\n\
           open_file_cache max=10000; client_max_body_size 0; client_body_temp_path {root}/.tmp;\n\
           proxy_temp_path {place}/t1; fastcgi_temp_path {place}/t2; uwsgi_temp_path {place}/t3; scgi_temp_path {place}/t4;\n\
           server {{ listen 127.0.0.1:{port}{ssl} reuseport; {tls} root {root}; dav_methods PUT DELETE; create_full_put_path on; }}\n\
         }}"
    )?;
    Ok(text)
}
