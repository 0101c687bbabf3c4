//! The page, with a real browser over a real node: plain and over TLS.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::browser::Browser;
use crate::node::{Node, noise};

/// A picture of one pixel.
const PNG: &[u8] =
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0\x90wS\xde\0\0\0\x0cIDATx\x9cc\xf8\xcf\
    \xc0\0\0\x03\x01\x01\0\xc9\xfe\x92\xef\0\0\0\0IEND\xaeB`\x82";

/// A node with alice, who may do everything below `/managed`.
fn furnished() -> Node {
    let node = Node::start();
    node.add_user("alice", "wonder");
    node.run(&["mkdir", "/managed"]).ok();
    node.run(&["acl", "grant", "/managed", "alice", "all"]).ok();
    node
}

fn log_in(browser: &Browser, url: &str) {
    browser.open(url);
    browser.type_into("input[name=user]", "alice");
    browser.type_into("input[name=password]", "wonder");
    browser.click(".login button");
    browser.wait_for("document.querySelector('header form[method=post]')");
}

/// A row of the listing, by the name that it shows.
fn row(name: &str) -> String {
    format!(
        "[...document.querySelectorAll('tbody tr')].find(row => row.querySelector('a').textContent === '{name}')"
    )
}

fn press(browser: &Browser, name: &str, button: &str) {
    // Not waited for: it asks, and nothing else is answered meanwhile.
    browser.run(&format!(
        "const found = [...({}).querySelectorAll('button')].find(button => button.textContent === '{button}');
         setTimeout(() => found.click(), 0)",
        row(name)
    ));
}

#[test]
fn a_person_with_a_browser_brings_files_changes_them_and_takes_them_away() {
    let Some(browser) = Browser::start("page::bringing") else { return };
    let node = furnished();
    for base in [format!("http://{}", node.address()), format!("https://localhost:{}", node.https_port())] {
        node.run(&["rm", "-rf", "/managed/new folder"]);
        log_in(&browser, &format!("{base}/managed/"));
        browser.run("setTimeout(() => document.getElementById('make').click(), 0)");
        assert!(browser.answer(Some("new folder")).contains("Name"));
        browser.wait_for(&row("new folder"));
        browser.open(&format!("{base}/managed/new%20folder/"));

        let chosen = node.write("chosen.txt", "from the disk");
        browser.choose("#files", &chosen);
        browser.wait_for(&row("chosen.txt"));
        assert_eq!(node.run(&["cat", "/managed/new folder/chosen.txt"]).ok(), "from the disk");

        // Dropped: a name that would be markup, and a second version of the first file.
        browser.run(
            "const carried = new DataTransfer();
             carried.items.add(new File(['dropped'], '<b onclick=x>&.txt', {lastModified: 1000000000000}));
             carried.items.add(new File(['newer'], 'chosen.txt'));
             document.dispatchEvent(new DragEvent('drop', {dataTransfer: carried, bubbles: true, cancelable: true}))",
        );
        assert_eq!(browser.answer(None), "Replace chosen.txt?");
        browser.wait_for(&row("<b onclick=x>&.txt"));
        assert_eq!(node.run(&["cat", "/managed/new folder/<b onclick=x>&.txt"]).ok(), "dropped");
        assert_eq!(node.run(&["cat", "/managed/new folder/chosen.txt"]).ok(), "newer");
        let told = node.run(&["stat", "/managed/new folder/<b onclick=x>&.txt"]).ok();
        assert!(told.contains("modified   2001-09-09 01:46:40"), "{told}");
        assert_eq!(browser.run("return document.querySelectorAll('b').length"), 0);

        press(&browser, "<b onclick=x>&.txt", "rename");
        browser.answer(Some("chosen.txt"));
        browser.wait_for(
            "document.getElementById('said').textContent.includes('already something named chosen.txt')",
        );
        press(&browser, "<b onclick=x>&.txt", "rename");
        browser.answer(Some("q?#%.txt"));
        browser.wait_for(&row("q?#%.txt"));
        assert_eq!(node.run(&["cat", "/managed/new folder/q?#%.txt"]).ok(), "dropped");

        press(&browser, "chosen.txt", "remove");
        assert!(browser.answer(None).contains("Remove chosen.txt?"));
        browser.wait_for(&format!("!{} && {}", row("chosen.txt"), row("q?#%.txt")));
        node.run(&["cat", "/managed/new folder/chosen.txt"]).fails(1, &[]);

        browser.click("header form[method=post] button");
        browser.wait_for("document.querySelector('.login')");
    }
}

/// Passes on what one end says until it has said so much; then the line breaks.
fn pass(mut from: TcpStream, mut to: TcpStream, most: usize, broken: &AtomicUsize) {
    let (mut piece, mut passed) = (vec![0; 64 << 10], 0);
    while passed < most {
        let Ok(read @ 1..) = from.read(&mut piece) else { break };
        passed += read;
        if to.write_all(&piece[..read]).is_err() {
            break;
        }
    }
    if passed >= most {
        broken.fetch_add(1, Ordering::Relaxed);
    }
    for end in [&from, &to] {
        let _ = end.shutdown(Shutdown::Both);
    }
}

/// A line to a node that breaks twice, each time after so many bytes. Returns where it begins, and how often it broke.
fn weak_line(node: &Node, most: usize) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it has one").port();
    let (to, broken) = (node.address(), Arc::new(AtomicUsize::new(0)));
    let counted = broken.clone();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(onward)) = (client, TcpStream::connect(to)) else { return };
            let most = if counted.load(Ordering::Relaxed) < 2 { most } else { usize::MAX };
            let (from, into) = (client.try_clone().expect("copied"), onward.try_clone().expect("copied"));
            let broken = counted.clone();
            std::thread::spawn(move || pass(from, into, most, &broken));
            std::thread::spawn(move || pass(onward, client, usize::MAX, &AtomicUsize::new(0)));
        }
    });
    (port, broken)
}

#[test]
fn a_large_file_goes_on_where_the_line_broke() {
    let Some(browser) = Browser::start("page::large") else { return };
    let mut node = furnished();
    node.allow("broke off");
    let bytes = noise(11, 70 << 20);
    let file = node.write("large \u{e9}.bin", &bytes);
    let (port, broken) = weak_line(&node, 25 << 20);
    log_in(&browser, &format!("http://127.0.0.1:{port}/managed/"));
    browser.choose("#files", &file);
    browser.wait_for(&row("large \u{e9}.bin"));
    assert_eq!(broken.load(Ordering::Relaxed), 2, "the line broke");
    let token = node.login("alice", "wonder", &[]);
    assert!(node.http(Some(&token)).bytes("/managed/large%20%C3%A9.bin") == bytes);
}

#[test]
fn what_is_known_of_a_file_is_shown_with_a_look_at_it() {
    let Some(browser) = Browser::start("page::about") else { return };
    let node = furnished();
    let (picture, text) =
        (node.write("dot.png", PNG), node.write("t.txt", "first line\n<script>x()</script>"));
    for file in [&picture, &text] {
        node.run(&["cp", file.to_str().expect("plain"), "weft:/managed/"]).ok();
    }
    let base = format!("http://{}/managed/", node.address());
    log_in(&browser, &base);
    browser.open(&format!("{base}dot.png?page=about"));
    browser.wait_for("document.images[0].naturalWidth === 1");
    browser.open(&format!("{base}t.txt?page=about"));
    let shown = browser.run("return document.querySelector('pre').textContent");
    assert_eq!(shown, "first line\n<script>x()</script>");
    let rights = browser.run("return document.querySelector('dl').textContent");
    assert!(
        rights.as_str().is_some_and(|text| text.contains("/managed") && text.contains("alice")),
        "{rights}"
    );
}

#[test]
fn a_link_is_made_followed_by_somebody_else_and_ended_on_the_page() {
    let (Some(browser), Some(stranger)) = (Browser::start("page::link"), Browser::start("page::follow"))
    else {
        return;
    };
    let node = furnished();
    node.run(&["mkdir", "/managed/set"]).ok();
    for name in ["one.txt", "two.txt"] {
        let file = node.write(name, name);
        node.run(&["cp", file.to_str().expect("plain"), "weft:/managed/set/"]).ok();
    }
    let base = format!("http://{}", node.address());
    log_in(&browser, &format!("{base}/managed/set/"));
    browser.open(&format!("{base}/managed/set/?page=about"));
    browser.click("form[action='?page=link'] button");
    browser.wait_for("document.querySelector('.address')");
    let link = browser.run("return document.querySelector('.address').value");
    let link = link.as_str().expect("an address").to_owned();
    assert!(link.starts_with(&format!("{base}/.weft/link/")), "{link}");

    stranger.open(&link);
    stranger.wait_for(&row("two.txt"));
    let seen = stranger.run("return document.body.innerText");
    let seen = seen.as_str().expect("text");
    assert!(!seen.contains("managed") && !seen.contains("alice") && !seen.contains("Log in"), "{seen}");
    assert_eq!(stranger.run("return document.querySelectorAll('form[method=post], script').length"), 0);
    stranger.run("document.querySelector('tbody a[href=\"./one.txt\"]').click()");
    stranger.wait_for("document.body.innerText.trim() === 'one.txt'");

    browser.open(&format!("{base}/?page=links"));
    assert_eq!(browser.run("return document.querySelectorAll('tbody tr').length"), 1);
    browser.click("form[action='?page=unlink'] button");
    browser.wait_for(
        "document.querySelector('tbody tr') && !document.querySelector('form[action=\"?page=unlink\"]')",
    );
    stranger.open(&link);
    stranger.wait_for("document.body.innerText.includes('the link has ended') || document.body.innerText.includes('The link has ended')");
}

#[test]
fn somebody_with_the_link_to_a_drop_box_sends_files_and_sees_none() {
    let Some(stranger) = Browser::start("page::drop") else { return };
    let node = furnished();
    node.run(&["mkdir", "/managed/in"]).ok();
    node.run(&["dropbox", "create", "/managed/in", "--bytes", "1M", "--files", "10", "--rate", "1M/d"]).ok();
    let made = node.run(&["link", "create", "/managed/in", "--drop", "--json"]).json();
    let target = made[0]["target"].as_str().expect("where it is");
    stranger.open(&format!("http://{}{target}", node.address()));
    let sent = node.write("sent & <b>.txt", "for alice");
    stranger.choose("#files", &sent);
    stranger.wait_for("document.getElementById('moves').innerText.includes('sent:')");
    let names = node.run(&["ls", "/managed/in"]).ok();
    assert!(names.starts_with("sent & <b>") && names.lines().count() == 1, "{names}");
    assert_eq!(node.run(&["cat", &format!("/managed/in/{}", names.trim_end())]).ok(), "for alice");
    stranger.open(&format!("http://{}{target}", node.address()));
    let seen = stranger.run("return document.documentElement.outerHTML");
    assert!(seen.as_str().is_some_and(|text| !text.contains("sent &amp;")), "{seen}");
}

/// A page of another site, as its owner would write it, that asks for everything it can.
const FOREIGN: &str = "<!DOCTYPE html><title>foreign</title><body><script>
  const target = 'NODE/managed/keep';
  const tries = [
    fetch(target, {method: 'DELETE', credentials: 'include'}),
    fetch(target, {method: 'PUT', body: 'x', credentials: 'include'}),
    fetch(target, {method: 'PUT', body: 'x', credentials: 'include', mode: 'no-cors'}),
    fetch('NODE/managed/?page=logout', {method: 'POST', body: 'guard=', credentials: 'include', mode: 'no-cors'}),
    fetch(target, {credentials: 'include'}).then(answer => answer.text()).then(text => { document.title = text; }),
  ];
  Promise.allSettled(tries).then(() => { document.body.dataset.done = '1'; });
</script><form method=post action='NODE/managed/?page=logout'><input name=guard value=''></form>";

#[test]
fn a_page_of_another_site_neither_reads_nor_changes_nor_logs_out() {
    let Some(browser) = Browser::start("page::foreign") else { return };
    let node = furnished();
    let kept = node.write("keep", "kept");
    node.run(&["cp", kept.to_str().expect("plain"), "weft:/managed/"]).ok();
    let base = format!("http://{}", node.address());
    log_in(&browser, &format!("{base}/managed/"));
    let foreign = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = foreign.local_addr().expect("it has one").port();
    let page = FOREIGN.replace("NODE", &base);
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = foreign.accept().expect("the browser comes");
        let mut asked = [0; 4096];
        let _ = stream.read(&mut asked).expect("it asks");
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n", page.len());
        stream.write_all((head + &page).as_bytes()).expect("it is told");
    });
    // Another host name, so another site; the node is known by its address.
    browser.open(&format!("http://localhost:{port}/"));
    serving.join().expect("it was served");
    browser.wait_for("document.body.dataset.done");
    assert_eq!(browser.run("return document.title"), "foreign", "nothing was read");
    browser.run("document.forms[0].submit()");
    browser.wait_for("location.pathname === '/managed/' && document.readyState === 'complete'");
    assert_eq!(node.run(&["cat", "/managed/keep"]).ok(), "kept");
    browser.open(&format!("{base}/managed/"));
    browser.wait_for("document.querySelector('header form[method=post]')");
}
