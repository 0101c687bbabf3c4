//! Servers that speak HTTP as the other side of copies: WebDAV of rclone and of Apache, and files of nginx and of
//! Python.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::runtime::Runtime;
use weft_conformance::run::have;
use weft_conformance::scripted::{Scripted, say};

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
        Self::rclone_with(node, &[])
    }

    fn rclone_with(node: &Node, more: &[&str]) -> Self {
        Self::start(node, "rclone", |root, port| {
            let address = format!("127.0.0.1:{port}");
            let usual = [
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
                // What changes in the directory is seen.
                "--dir-cache-time",
                "0s",
            ];
            usual.iter().chain(more).map(|word| (*word).to_owned()).collect()
        })
    }

    /// Gives out a directory as files, and as a page that lists them.
    fn plain(node: &Node) -> Self {
        Self::start(node, "python3", |root, port| {
            ["-m", "http.server", "--bind", "127.0.0.1", "--directory", root, &port.to_string()]
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

/// Has a server know who comes.
fn let_in(node: &Node) {
    node.write("home/.netrc", "machine 127.0.0.1 login u password p\n");
    node.sh("chmod 600 home/.netrc");
}

fn there_and_back(start: impl Fn(&Node) -> Server) {
    let node = Node::start();
    let server = start(&node);
    let_in(&node);
    node.sh("mkdir -p from/a/deep 'from/with space'; echo 1 > from/one; echo 2 > 'from/with space/%41 ü'; : > from/a/deep/empty");
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
    let server = Server::plain(&node);
    let bytes = noise(4, 3 << 20);
    fs::write(server.root.join("f"), &bytes).expect("it is written");
    node.run(&["cp", &format!("{}/f", server.url), "weft:/f"]).ok();
    node.run(&["cp", "weft:/f", "f"]).ok();
    assert!(fs::read(node.path("f")).expect("it is there") == bytes);
    node.run(&["import", &server.url, "/all"]).fails(1, &["WebDAV"]);
    node.run(&["cp", "weft:/f", &format!("{}/g", server.url)]).fails(1, &["501"]);
}

#[test]
fn rclones_webdav_loses_what_the_source_lacks() {
    if have("servers::rclone_delete", &["rclone", "diff"]) {
        loses(Server::rclone);
    }
}

#[test]
fn apaches_webdav_loses_what_the_source_lacks() {
    if have("servers::apache_delete", &["apache2", "openssl", "diff"]) {
        loses(Server::apache);
    }
}

/// Returns what a dry run would remove below an address, in order.
fn would_remove(said: &str, top: &str) -> Vec<String> {
    let removed = said.lines().filter_map(|line| line.strip_prefix("remove "));
    let mut paths: Vec<String> =
        removed.map(|line| line.strip_prefix(top).unwrap_or_else(|| panic!("{line}")).to_owned()).collect();
    paths.sort();
    paths
}

/// Runs a synchronisation, and returns how much it removed.
#[track_caller]
fn removes(node: &Node, arguments: &[&str]) -> u64 {
    let said = node.run(&[&["sync", "--delete", "--json"], arguments].concat()).json();
    said.last().and_then(|last| last["removed"].as_u64()).expect("a summary")
}

fn loses(start: impl Fn(&Node) -> Server) {
    let node = Node::start();
    let server = start(&node);
    let_in(&node);
    node.sh("mkdir -p from/a/deep; echo 1 > from/one; echo 2 > 'from/a/with ü'; echo 3 > from/a/deep/f");
    node.run(&["import", "from", "/d"]).ok();
    let to = format!("{}/out/", server.url);
    node.run(&["export", "/d", &to]).ok();
    node.sh("cd served/out; mkdir -p gone/deep half; for f in gone/deep/x a/extra '%41 é' half/y half/z.o own.o; do echo x > \"$f\"; done");
    let there = node.sh("cd served/out && find . | sort");
    // What is left out on both sides is lacking on neither.
    let sync = ["--exclude", "*.o", "--exclude", "/a/deep/", "weft:/d", &to];
    let dry = node.run(&[&["sync", "--delete", "-n"], &sync[..]].concat()).ok();
    assert_eq!(
        would_remove(&dry, &to),
        ["%2541%20%C3%A9", "a/extra", "gone/", "gone/deep/", "gone/deep/x", "half/y"]
    );
    assert_eq!(node.sh("cd served/out && find . | sort"), there);
    assert_eq!(removes(&node, &sync), 6);
    node.sh("cd served/out; test -f half/z.o; test -f own.o; test -f a/deep/f; test ! -e gone; test ! -e half/y; rm -r half own.o");
    node.sh("diff -r from served/out");
    assert_eq!(removes(&node, &sync), 0);
    // A file where a directory was, and the other way round: not where a rule might protect what is in it.
    node.sh("rm -r from/one from/a/deep; mkdir from/one; echo 4 > from/one/in; echo 5 > from/a/deep; rm 'from/a/with ü'");
    node.run(&["sync", "--delete", "from", "weft:/d"]).ok();
    node.run(&["sync", "--delete", "--exclude", "*.o", "weft:/d", &to])
        .fails(1, &["a directory stands there", "nothing was removed"]);
    node.sh("test -f 'served/out/a/with ü'; test -f served/out/a/deep/f");
    let dry = node.run(&["sync", "--delete", "-n", "weft:/d", &to]).ok();
    assert_eq!(would_remove(&dry, &to), ["a/deep/", "a/deep/f", "a/with%20%C3%BC"]);
    assert!(dry.contains("/out/a/deep\n"), "{dry}");
    node.run(&["sync", "--delete", "weft:/d", &to]).ok();
    node.sh("diff -r from served/out");
    // What the server keeps is told, and the rest goes.
    node.sh("mkdir -p served/out/a/stuck; echo > served/out/a/stuck/f; chmod 555 served/out/a/stuck; echo > served/out/z");
    let said = node.run(&["sync", "--delete", "weft:/d", &to]);
    assert!(
        said.code != 0 && said.err.contains("cannot remove") && said.err.contains("/out/a/stuck/"),
        "{}",
        said.err
    );
    node.sh("chmod 755 served/out/a/stuck; rm -r served/out/a/stuck; diff -r from served/out");
}

#[test]
fn a_server_loses_nothing_where_not_all_of_the_source_was_read() {
    if !have("servers::source", &["rclone"]) {
        return;
    }
    let node = Node::start();
    let server = Server::rclone(&node);
    let_in(&node);
    node.sh("mkdir -p from/closed; echo 1 > from/one; echo 2 > from/closed/in");
    node.run(&["import", "from", "/d"]).ok();
    let to = format!("{}/out", server.url);
    node.run(&["export", "/d", &to]).ok();
    node.sh("echo x > served/out/extra");
    node.add_user("bob", "bob's password");
    node.run(&["acl", "grant", "/d", "bob", "read"]).ok();
    node.run(&["acl", "grant", "--deny", "/d/closed", "bob", "all"]).ok();
    let token = node.login("bob", "bob's password", &[]);
    node.run_with(&token, &["sync", "--delete", "weft:/d", &to]).fails(3, &["nothing was removed"]);
    node.sh("test -f served/out/extra; test -f served/out/closed/in");
    // What a server has no kind for was not copied either, unless it is left out.
    node.sh("ln -s one from/link");
    // Nor does a directory then go for a file.
    node.sh("echo 3 > from/zz; mkdir served/out/zz; echo x > served/out/zz/in");
    node.run(&["sync", "--delete", "from", "weft:/d"]).ok();
    node.run(&["sync", "--delete", "weft:/d", &to])
        .fails(1, &["passed over", "a directory stands there", "nothing was removed"]);
    node.sh("test -f served/out/extra; test -f served/out/zz/in; rm -r served/out/zz from/zz");
    node.run(&["rm", "/d/zz"]).ok();
    assert_eq!(removes(&node, &["--exclude", "link", "weft:/d", &to]), 1);
    node.sh("test ! -e served/out/extra; test -f served/out/closed/in");
}

#[test]
fn a_server_to_which_two_names_are_one_does_not_lose_what_it_was_given() {
    if !have("servers::one_name", &["rclone"]) {
        return;
    }
    let node = Node::start();
    let server = Server::rclone_with(&node, &["--vfs-case-insensitive"]);
    let_in(&node);
    node.sh("mkdir -p from served/out; echo new > from/README; echo old > served/out/readme");
    node.run(&["import", "from", "/d"]).ok();
    let to = format!("{}/out/", server.url);
    node.run(&["sync", "--delete", "weft:/d", &to]).fails(1, &["by another name"]);
    assert_eq!(node.sh("cat served/out/*"), "new\n");
}

#[test]
fn the_tree_loses_what_rclones_webdav_lacks() {
    if have("servers::rclone_source", &["rclone", "diff"]) {
        tree_loses(Server::rclone);
    }
}

#[test]
fn the_tree_loses_what_apaches_webdav_lacks() {
    if have("servers::apache_source", &["apache2", "openssl", "diff"]) {
        tree_loses(Server::apache);
    }
}

#[test]
fn the_tree_does_not_lose_what_a_server_may_not_read() {
    // Of those here only Apache says that it may not: rclone says that nothing is there.
    if !have("servers::unread", &["apache2", "openssl"]) {
        return;
    }
    let node = Node::start();
    let server = Server::apache(&node);
    let_in(&node);
    node.sh("mkdir -p served/in/deep; echo 1 > served/in/deep/f");
    let from = format!("{}/in", server.url);
    node.run(&["import", &from, "/m"]).ok();
    node.feed(&["cp", "-", "weft:/m/own"], b"own");
    node.sh("chmod 000 served/in/deep");
    let said = node.run(&["sync", "--delete", &from, "weft:/m"]);
    node.sh("chmod 755 served/in/deep");
    assert!(said.code != 0 && said.err.contains("nothing was removed"), "{}", said.err);
    node.run(&["cat", "/m/own", "/m/deep/f"]).ok();
}

fn tree_loses(start: impl Fn(&Node) -> Server) {
    let node = Node::start();
    let server = start(&node);
    let_in(&node);
    node.sh("mkdir -p served/in/a/deep; echo 1 > served/in/one; echo 2 > 'served/in/a/with ü'; echo 3 > served/in/a/deep/f");
    let from = format!("{}/in", server.url);
    node.run(&["import", &from, "/m"]).ok();
    node.sh("mkdir -p more/gone/deep more/half more/a; cd more; for f in gone/deep/x a/extra half/y half/z.o own.o; do echo x > $f; done");
    node.run(&["import", "more", "/m"]).ok();
    let sync = ["--exclude", "*.o", "--exclude", "/a/deep/", &from, "weft:/m"];
    let dry = node.run(&[&["sync", "--delete", "-n"], &sync[..]].concat()).ok();
    assert_eq!(would_remove(&dry, "/m/"), ["a/extra", "gone", "gone/deep", "gone/deep/x", "half/y"]);
    assert_eq!(removes(&node, &sync), 5);
    let left = node.run(&["find", "/m", "--type", "f"]).ok();
    let mut left: Vec<&str> = left.lines().collect();
    left.sort_unstable();
    assert_eq!(left, ["/m/a/deep/f", "/m/a/with ü", "/m/half/z.o", "/m/one", "/m/own.o"]);
    // A file where a directory was, and the other way round.
    node.sh("cd served/in; rm -r one a/deep; mkdir one; echo 4 > one/in; echo 5 > a/deep");
    node.run(&["sync", "--delete", "--exclude", "*.o", &from, "weft:/m"])
        .fails(1, &["a directory stands there", "nothing was removed"]);
    node.run(&["cat", "/m/a/deep/f"]).ok();
    node.run(&["sync", "--delete", &from, "weft:/m"]).ok();
    node.run(&["export", "/m", "back"]).ok();
    node.sh("diff -r served/in back");
}

/// What a server tells of a directory of its own.
pub const OWN: &str = "<response><href>/in/</href><propstat><prop><resourcetype><collection/></resourcetype></prop>\
    <status>HTTP/1.1 200 OK</status></propstat></response>";

/// Returns an answer that lists, with so many bytes more promised than come.
pub fn listing(responses: &str, missing: usize) -> String {
    let text = format!("<multistatus xmlns=\"DAV:\">{responses}</multistatus>");
    format!("HTTP/1.1 207 Multi-Status\r\nContent-Length: {}\r\n\r\n{text}", text.len() + missing)
}

#[test]
fn the_tree_loses_nothing_for_a_listing_that_may_not_be_whole() {
    let node = Node::start();
    let runtime = Runtime::new().expect("a runtime");
    node.sh("mkdir -p more/sub; echo x > more/extra; echo x > more/sub/extra");
    node.run(&["import", "more", "/m"]).ok();
    let sync = |scripts: &[String]| {
        let scripts = scripts.iter().map(|answer| vec![say(answer)]).collect();
        let server = runtime.block_on(Scripted::open(scripts));
        node.run(&["sync", "--delete", &server.url::<String>("/in/"), "weft:/m"])
    };
    let empty = listing(OWN, 0);
    let sub = OWN.replace("/in/", "/in/sub/");
    let odd = |more: &str| listing(&format!("{OWN}{more}"), 0);
    let page = "<html><body><a href=\"one\">one</a></body></html>";
    let html =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{page}", page.len());
    let answer = |status: &str| format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
    for (what, bad) in [
        ("one that is cut short", listing(OWN, 100)),
        (
            "one the server cut off",
            odd("<response><href>/in/</href><status>HTTP/1.1 507 Insufficient Storage</status></response>"),
        ),
        (
            "one that keeps something back",
            odd("<response><href>/in/x</href><status>HTTP/1.1 403 Forbidden</status></response>"),
        ),
        ("one of nothing", listing("", 0)),
        ("one of something else", listing("<response><href>/other/</href></response>", 0)),
        ("a page", html.clone()),
        ("one of a name twice", odd(&format!("{sub}{}", sub.replace("<collection/>", "")))),
        ("a server that fails", answer("500 Oh")),
        ("one that is not there any more", answer("404 Not Found")),
        (
            "one that is elsewhere",
            "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n".to_owned(),
        ),
    ] {
        let kept = |said: crate::node::Said| {
            assert!(said.code != 0 && said.err.contains("nothing was removed"), "{what}: {}", said.err);
            assert_eq!(node.run(&["cat", "/m/extra", "/m/sub/extra"]).ok(), "x\nx\n", "{what}");
        };
        let then = listing(&OWN.replace("/in/", "/"), 0);
        kept(sync(&[empty.clone(), bad.clone(), then.clone()]));
        // Of a directory below, too: what is known of the rest does not help.
        kept(sync(&[empty.clone(), odd(&sub), bad, then]));
    }
    // Before anything was told at all.
    for (bad, word) in
        [(html, "WebDAV"), (answer("405 Method Not Allowed"), "WebDAV"), (answer("404 Not Found"), "WebDAV")]
    {
        sync(&[bad]).fails(1, &[word]);
    }
    assert_eq!(node.run(&["cat", "/m/extra", "/m/sub/extra"]).ok(), "x\nx\n");
    // Nor does a file go because a directory was to be where it is.
    let whole = vec![vec![say(&empty)]];
    let server = runtime.block_on(Scripted::open(whole));
    node.run(&["sync", "--delete", &server.url::<String>("/in/"), "weft:/m/extra"])
        .fails(1, &["not a directory"]);
    node.run(&["cat", "/m/extra"]).ok();
    sync(&[empty]).fails(0, &["removed"]);
    assert_eq!(node.run(&["find", "/m"]).ok(), "/m\n");
}

#[test]
fn a_directory_of_the_tree_stays_until_all_of_what_replaces_it_has_come() {
    let node = Node::start();
    let runtime = Runtime::new().expect("a runtime");
    node.sh("mkdir -p more/x; echo x > more/x/precious");
    node.run(&["import", "more", "/m"]).ok();
    let file = OWN.replace("/in/", "/in/x").replace("<collection/>", "");
    let listed = listing(&format!("{OWN}{file}"), 0);
    let sync = |body: &str, more: &[&str]| {
        let whole = format!("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{body}");
        let answers = [&listing(OWN, 0), &listed, &whole].map(|answer| vec![say(answer)]);
        let server = runtime.block_on(Scripted::open(answers.to_vec()));
        let from = server.url::<String>("/in/");
        let said = node.run(&[&["sync", "--delete"], more, &[&from, "weft:/m"]].concat());
        (said, server.heads().iter().filter(|head| head.starts_with("GET")).count())
    };
    // Nor is it asked for where it would not replace it.
    let (said, asked) = sync("new", &["--exclude", "*.o"]);
    said.fails(1, &["a directory stands there"]);
    assert_eq!(asked, 0);
    let (said, _) = sync("n", &[]);
    assert!(said.code != 0 && said.err.contains("cannot copy http"), "{}", said.err);
    assert_eq!(node.run(&["cat", "/m/x/precious"]).ok(), "x\n");
    sync("new", &[]).0.ok();
    assert_eq!(node.run(&["cat", "/m/x"]).ok(), "new");
}

#[test]
fn a_server_loses_nothing_for_a_listing_that_may_not_be_whole() {
    let node = Node::start();
    let runtime = Runtime::new().expect("a runtime");
    // A directory and a file, for each of which the server has, or says it has, the other.
    node.sh("mkdir -p from/x; echo 1 > from/f");
    node.run(&["import", "from", "/d"]).ok();
    let asked = |answers: &[String], more: &[&str]| {
        let answers = answers.iter().map(|answer| vec![say(answer)]).collect();
        let server = runtime.block_on(Scripted::open(answers));
        let said =
            node.run(&[&["sync", "--delete"], more, &["weft:/d", &server.url::<String>("/in/")]].concat());
        let asks_to_remove = server.heads().iter().any(|head| head.starts_with("DELETE"));
        (said, asks_to_remove)
    };
    let file = OWN.replace("/in/", "/in/x").replace("<collection/>", "");
    let directory = OWN.replace("/in/", "/in/f/");
    let extra = OWN.replace("/in/", "/in/extra/");
    let listed = |members: &str| listing(&format!("{OWN}{members}"), 0);
    let hidden = file.replace("200 OK", "403 Forbidden");
    let away = "HTTP/1.1 302 Found\r\nLocation: /other/\r\nContent-Length: 0\r\n\r\n".to_owned();
    let other = |text: String| text.replace("/in/", "/other/");
    for answers in [
        vec![listed(&hidden), listed(&hidden)],
        vec![away, other(listed(&directory)), other(listed(&directory))],
        // It is something else when it is looked at once more.
        vec![listed(&file), listing(&OWN.replace("/in/", "/in/x/"), 0)],
        vec![listed(&file), listing(&hidden, 0)],
        // It is a file, and of something else nobody knows what it is.
        vec![listed(&format!("{file}{}", hidden.replace("/in/x", "/in/y"))), listing(&file, 0)],
        // What else is there stays as well.
        vec![listed(&format!("{hidden}{extra}")), listed(&extra)],
    ] {
        for more in [&[][..], &["-n"]] {
            let (said, asks_to_remove) = asked(&answers, more);
            assert!(said.code != 0 || !more.is_empty(), "{answers:?}: {}", said.err);
            assert!(
                !asks_to_remove && !said.out.contains("remove "),
                "{answers:?}: {}{}",
                said.out,
                said.err
            );
        }
    }
    let removed = "HTTP/1.1 204 No Content\r\n\r\n".to_owned();
    let (_, asks_to_remove) = asked(&[listed(&file), listing(&file, 0), removed], &[]);
    assert!(asks_to_remove, "a file goes for a directory");
}

#[test]
fn what_a_server_has_more_stays_if_what_replaces_a_directory_cannot_be_sent() {
    let node = Node::start();
    let runtime = Runtime::new().expect("a runtime");
    node.sh("mkdir from; echo 1 > from/f");
    node.run(&["import", "from", "/d"]).ok();
    let (directory, extra) = (OWN.replace("/in/", "/in/f/"), OWN.replace("/in/", "/in/extra/"));
    let answers = [
        listing(&format!("{OWN}{directory}{extra}"), 0),
        listing(&directory, 0),
        "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
        "HTTP/1.1 507 Insufficient Storage\r\nContent-Length: 0\r\n\r\n".to_owned(),
        listing(&format!("{OWN}{extra}"), 0),
    ];
    let server = runtime.block_on(Scripted::open(answers.map(|answer| vec![say(answer)]).to_vec()));
    let said = node.run(&["sync", "--delete", "weft:/d", &server.url::<String>("/in/")]);
    assert!(said.code != 0 && said.err.contains("nothing more was removed"), "{}", said.err);
    let removed: Vec<String> = server.heads().into_iter().filter(|head| head.starts_with("DELETE")).collect();
    assert!(removed.len() == 1 && removed[0].starts_with("DELETE /in/f/ "), "{removed:?}");
}

#[test]
fn a_directory_of_a_server_goes_by_one_request_once_all_in_it_was_seen() {
    let node = Node::start();
    let runtime = Runtime::new().expect("a runtime");
    node.run(&["mkdir", "/empty"]).ok();
    let top = OWN.to_owned() + &OWN.replace("/in/", "/in/gone/");
    let gone = OWN.replace("/in/", "/in/gone/") + &OWN.replace("/in/", "/in/gone/deep/");
    let deep = OWN.replace("/in/", "/in/gone/deep/");
    let removed = "HTTP/1.1 204 No Content\r\n\r\n".to_owned();
    // What the server was asked, and how it ended.
    let sync = |answers: &[String]| {
        let answers = answers.iter().map(|answer| vec![say(answer)]).collect();
        let server = runtime.block_on(Scripted::open(answers));
        let said = node.run(&["sync", "--delete", "weft:/empty", &server.url::<String>("/in/")]);
        let heads = server.heads();
        let lines = heads.iter().filter_map(|head| head.split(" HTTP/").next()).map(str::to_owned);
        (said, lines.collect::<Vec<String>>())
    };
    let (top, gone, deep) = (listing(&top, 0), listing(&gone, 0), listing(&deep, 0));
    let (said, asked) = sync(&[top.clone(), top.clone(), gone.clone(), deep, removed.clone()]);
    said.fails(0, &["2 removed"]);
    let looks = ["/in/", "/in/", "/in/gone/", "/in/gone/deep/"].map(|path| format!("PROPFIND {path}"));
    assert_eq!(asked, [&looks[..], &["DELETE /in/gone/".to_owned()]].concat());
    for bad in [listing("", 0), "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_owned()] {
        let (said, asked) = sync(&[top.clone(), top.clone(), gone.clone(), bad, removed.clone()]);
        assert!(said.code != 0 && said.err.contains("cannot remove"), "{}", said.err);
        assert!(!asked.iter().any(|line| line.starts_with("DELETE")), "{asked:?}");
    }
}

#[test]
fn servers_without_webdav_are_not_synchronised_with() {
    if !have("servers::no_webdav", &["python3", "nginx"]) {
        return;
    }
    let node = Node::start();
    for start in [Server::plain as fn(&Node) -> Server, Server::nginx] {
        let server = start(&node);
        node.sh("rm -rf from served/*; mkdir -p from; echo 1 > from/one; echo x > served/extra");
        node.run(&["import", "from", "/d"]).ok();
        node.run(&["sync", "--delete", "weft:/d", &server.url]).fails(1, &["nothing was changed", "WebDAV"]);
        assert_eq!(node.sh("ls served"), "extra\n");
        node.run(&["sync", "--delete", &server.url, "weft:/d"]).fails(1, &["WebDAV"]);
        node.run(&["cat", "/d/one"]).ok();
    }
}
