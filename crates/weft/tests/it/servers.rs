//! Servers that speak HTTP as the other side of copies: WebDAV of rclone and of Apache, and files of nginx and of
//! Python.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use weft_conformance::run::have;

use crate::node::{Node, noise, signal, wait};

/// A server over a directory.
struct Server {
    child: Child,
    url: String,
    root: PathBuf,
}

impl Server {
    fn start(node: &Node, program: &str, arguments: impl FnOnce(&str, u16) -> Vec<String>) -> Self {
        let root = node.make_dir("served");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        drop(listener);
        let mut command = node.as_user(program);
        command
            .args(arguments(root.to_str().expect("plain"), port))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = Self {
            child: command.spawn().expect("it starts"),
            url: format!("http://127.0.0.1:{port}"),
            root,
        };
        let begun = Instant::now();
        while TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{program} does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        server
    }

    fn rclone(node: &Node) -> Self {
        Self::start(node, "rclone", |root, port| {
            let address = format!("127.0.0.1:{port}");
            [
                "--config",
                "/dev/null",
                "serve",
                "webdav",
                root,
                "--addr",
                &address,
                "--user",
                "u",
                "--pass",
                "p",
            ]
            .map(str::to_owned)
            .to_vec()
        })
    }

    fn apache(node: &Node) -> Self {
        node.sh("echo \"u:$(openssl passwd -apr1 p)\" > passwords");
        let modules = [
            "mpm_event",
            "authn_core",
            "authn_file",
            "authz_core",
            "authz_user",
            "auth_basic",
            "dav",
            "dav_fs",
        ];
        let loaded =
            modules.map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"));
        let kept = node.make_dir("apache").display().to_string();
        let passwords = node.path("passwords").display().to_string();
        Self::start(node, "apache2", |root, port| {
            let text = format!(
                "{}ServerName localhost\nListen 127.0.0.1:{port}\nPidFile {kept}/pid\nErrorLog {kept}/log\n\
                 DefaultRuntimeDir {kept}\nDocumentRoot {root}\nDavLockDB {kept}/locks\n<Directory {root}>\nDav On\n\
                 AuthType Basic\nAuthName served\nAuthUserFile {passwords}\nRequire user u\n</Directory>\n",
                loaded.concat()
            );
            let file = node.write("apache/conf", text);
            ["-DFOREGROUND", "-f", file.to_str().expect("plain")].map(str::to_owned).to_vec()
        })
    }

    /// Files, and whoever comes may put more.
    fn nginx(node: &Node) -> Self {
        let kept = node.make_dir("nginx").display().to_string();
        Self::start(node, "nginx", |root, port| {
            let text = format!(
                "daemon off; pid {kept}/pid; error_log {kept}/log;\nevents {{}}\nhttp {{ access_log off; client_body_temp_path \
                 {kept}/body; proxy_temp_path {kept}/1; fastcgi_temp_path {kept}/2; uwsgi_temp_path {kept}/3; scgi_temp_path \
                 {kept}/4; server {{ listen 127.0.0.1:{port}; root {root}; client_max_body_size 0; dav_methods PUT; \
                 create_full_put_path on; }} }}\n"
            );
            let file = node.write("nginx/conf", text);
            ["-c", file.to_str().expect("plain")].map(str::to_owned).to_vec()
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already. Those that have children of their own end these when they are asked to.
        signal(&self.child, Signal::TERM);
        wait(&mut self.child);
    }
}

#[test]
fn a_directory_goes_to_rclones_webdav_and_comes_back_as_it_was() {
    if have("servers::rclone", &["rclone", "diff"]) {
        there_and_back(Server::rclone);
    }
}

#[test]
fn a_directory_goes_to_apaches_webdav_and_comes_back_as_it_was() {
    if have("servers::apache", &["apache2", "openssl", "diff"]) {
        there_and_back(Server::apache);
    }
}

fn there_and_back(start: impl Fn(&Node) -> Server) {
    let node = Node::start();
    let server = start(&node);
    node.write("home/.netrc", "machine 127.0.0.1 login u password p\n");
    node.sh("chmod 600 home/.netrc; mkdir -p from/a/deep 'from/with space'; echo 1 > from/one; echo 2 > 'from/with space/%41 ü'; : > from/a/deep/empty");
    node.write("from/a/large", noise(9, 5 << 20));
    node.sh("chmod 644 from/a/large; echo no > from/a/x.o");
    node.run(&["import", "from", "/d"]).ok();
    let to = format!("{}/out", server.url);
    let dry = node.run(&["export", "-n", "--exclude", "*.o", "/d", &to]).ok();
    assert!(dry.contains("/out/one") && !dry.contains("x.o") && !server.root.join("out").exists(), "{dry}");
    node.run(&["export", "--exclude", "*.o", "/d", &to]).ok();
    let said = node.run(&["export", "--json", "--exclude", "*.o", "/d", &to]).json();
    assert_eq!(said.last().expect("a summary")["copied"], 0, "{said:?}");
    node.sh("diff -r -x x.o from served/out");
    node.run(&["import", &format!("{to}/"), "/back"]).ok();
    let said = node.run(&["sync", "--json", &format!("{to}/"), "weft:/back"]).json();
    assert_eq!(said.last().expect("a summary")["copied"], 0, "{said:?}");
    node.run(&["export", "/back", "back"]).ok();
    node.sh("diff -r -x x.o from back");
    node.run(&["cp", &format!("{to}/a/large"), "weft:/alone"]).ok();
    node.run(&["cp", "weft:/alone", &format!("{}/again", server.url)]).ok();
    node.sh("cmp from/a/large served/again");
    node.run(&["cp", &format!("{to}/nothing"), "weft:/nothing"]).fails(1, &["404"]);
    // Others could read it.
    node.sh("chmod 644 home/.netrc");
    node.run(&["cp", &format!("{to}/one"), "weft:/two"]).fails(3, &["chmod 600"]);
}

#[test]
fn nginx_gives_files_and_takes_them() {
    if !have("servers::nginx", &["nginx"]) {
        return;
    }
    let node = Node::start();
    let server = Server::nginx(&node);
    let bytes = noise(5, 3 << 20);
    node.write("f", &bytes);
    node.run(&["cp", "f", "weft:/f"]).ok();
    node.run(&["cp", "weft:/f", &format!("{}/new/g", server.url)]).ok();
    assert!(fs::read(server.root.join("new/g")).expect("it is there") == bytes);
    node.run(&["cp", &format!("{}/new/g", server.url), "weft:/g"]).ok();
    node.sh("mv f first");
    node.run(&["cp", "weft:/g", "f"]).ok();
    node.sh("cmp first f");
    // It lists nothing.
    node.run(&["import", &server.url, "/all"]).fails(1, &["WebDAV"]);
    node.run(&["cp", &format!("{}/none", server.url), "weft:/none"]).fails(1, &["404"]);
}

#[test]
fn a_plain_server_gives_files_and_takes_no_directory() {
    if !have("servers::plain", &["python3"]) {
        return;
    }
    let node = Node::start();
    let server = Server::start(&node, "python3", |root, port| {
        ["-m", "http.server", "--bind", "127.0.0.1", "--directory", root, &port.to_string()]
            .map(str::to_owned)
            .to_vec()
    });
    let bytes = noise(4, 3 << 20);
    fs::write(server.root.join("f"), &bytes).expect("it is written");
    node.run(&["cp", &format!("{}/f", server.url), "weft:/f"]).ok();
    node.run(&["cp", "weft:/f", "f"]).ok();
    assert!(fs::read(node.path("f")).expect("it is there") == bytes);
    node.run(&["import", &server.url, "/all"]).fails(1, &["WebDAV"]);
    node.run(&["cp", "weft:/f", &format!("{}/g", server.url)]).fails(1, &["501"]);
}
