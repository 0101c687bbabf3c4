//! WebDAV: what RFC 4918 says, request by request. `programs` has what clients make of it.

use bytes::Bytes;
use weft_core::acl::{AclEntry, Who};
use weft_core::attr::{SetAttr, TagEdit, TagMust, TagName};
use weft_core::form::{FileSystem, Guard, New, Scope, Want};
use weft_core::policy::PolicyEdit;
use weft_core::{Rights, limits};

use crate::house::{House, at};
use crate::raw::{Answer, Raw, basic};

const NOTHING: &[u8] = b"";

async fn open() -> (House, Raw) {
    let house = House::open().await;
    let raw = Raw::connect(house.address).await;
    (house, raw)
}

fn propfind(inner: &str) -> Vec<u8> {
    format!("<D:propfind xmlns:D='DAV:' xmlns:x='urn:x'>{inner}</D:propfind>").into_bytes()
}

fn patch(inner: &str) -> Vec<u8> {
    format!("<D:propertyupdate xmlns:D='DAV:' xmlns:x='urn:x'>{inner}</D:propertyupdate>").into_bytes()
}

fn lock_info(scope: &str) -> Vec<u8> {
    let owner = "<D:owner><D:href>mailto:a@b</D:href></D:owner>";
    format!(
        "<D:lockinfo xmlns:D='DAV:'><D:lockscope><D:{scope}/></D:lockscope>\
         <D:locktype><D:write/></D:locktype>{owner}</D:lockinfo>"
    )
    .into_bytes()
}

/// Takes a lock as alice. Returns its token, with the angle brackets.
async fn lock(raw: &mut Raw, path: &str, depth: &str) -> String {
    let answer =
        raw.alice(&format!("LOCK {path}"), &format!("Depth: {depth}\r\n"), &lock_info("exclusive")).await;
    assert!(matches!(answer.status, 200 | 201), "{path}: {answer:?}");
    answer.field("Lock-Token").expect("a token").to_owned()
}

fn hrefs(answer: &Answer) -> Vec<String> {
    let parts = answer.text().split("<D:href>").skip(1);
    parts.map(|part| part.split('<').next().expect("an end").to_owned()).collect()
}

#[tokio::test]
async fn a_directory_and_its_members_are_told_and_never_all_that_lies_below() {
    let (house, mut raw) = open().await;
    house.make_directory("public/d").await;
    house.put("public/f <&>.txt", "1234").await;
    house.put("public/d/deep", "x").await;
    let ask = propfind("<D:prop><D:resourcetype/><D:getcontentlength/><x:none/></D:prop>");
    let one = raw.alice("PROPFIND /public", "Depth: 1\r\n", &ask).await;
    assert_eq!(one.status, 207);
    assert_eq!(hrefs(&one), ["/public/", "/public/d/", "/public/f%20%3C%26%3E.txt"]);
    let text = one.text();
    assert!(text.contains("<D:getcontentlength>4</D:getcontentlength>"), "{text}");
    assert_eq!(text.matches("<D:collection/>").count(), 2);
    assert_eq!(text.matches("<none xmlns=\"urn:x\"/>").count(), 3, "each is told that it has none");
    let zero = raw.alice("PROPFIND /public/", "Depth: 0\r\n", &ask).await;
    assert_eq!(hrefs(&zero), ["/public/"]);
    for depth in ["", "Depth: infinity\r\n"] {
        let all = raw.alice("PROPFIND /public/", depth, NOTHING).await;
        assert_eq!((all.status, all.text().contains("<D:propfind-finite-depth/>")), (403, true));
    }
    let file = raw.alice("PROPFIND /public/d/deep", "Depth: infinity\r\n", NOTHING).await;
    assert_eq!((file.status, hrefs(&file).len()), (207, 1), "below a file there is nothing");
    let runs = propfind("<D:prop><executable xmlns='http://apache.org/dav/props/'/></D:prop>");
    let missing = raw.alice("PROPFIND /public/", "Depth: 0\r\n", &runs).await;
    assert!(
        missing.text().contains("<executable xmlns=\"http://apache.org/dav/props/\"/>"),
        "{}",
        missing.text()
    );
    let names = raw.alice("PROPFIND /public/d/deep", "Depth: 0\r\n", &propfind("<D:propname/>")).await;
    assert!(names.text().contains("<D:getetag/>") && !names.text().contains("quota"), "{}", names.text());
    let etag = raw.alice("HEAD /public/d/deep", "", NOTHING).await.field("ETag").expect("a tag").to_owned();
    assert!(file.text().contains(&etag.replace('"', "&quot;")));
}

#[tokio::test]
async fn only_who_may_look_is_told_and_who_has_said_nothing_is_asked() {
    let (house, mut raw) = open().await;
    house.put("private/secret", "x").await;
    house.put("public/f", "x").await;
    // Anyone passes through `/`, so may know what is in it, and what is not.
    let asked = [
        ("/private/", 401, 403),
        ("/private/secret", 401, 404),
        ("/private/none", 401, 404),
        ("/none", 404, 404),
    ];
    for (path, anyones, bobs) in asked {
        let answer = raw.ask(&format!("PROPFIND {path}"), "Depth: 0\r\n", NOTHING).await;
        assert_eq!(answer.status, anyones, "{path}");
        let bob = raw
            .ask(&format!("PROPFIND {path}"), &format!("{}Depth: 0\r\n", basic("bob", "b")), NOTHING)
            .await;
        assert_eq!(bob.status, bobs, "{path}");
    }
    assert_eq!(raw.ask("PROPFIND /public/", "Depth: 1\r\n", NOTHING).await.status, 207);
    for line in ["PROPPATCH /public/", "MOVE /public/f", "COPY /private/secret"] {
        let body = patch("<D:remove><D:prop><x:a/></D:prop></D:remove>");
        let answer = raw.ask(line, "Destination: /public/g\r\n", &body).await;
        assert!(matches!(answer.status, 401 | 403 | 207), "{line}: {}", answer.status);
        assert!(!answer.text().contains("200 OK"), "{line}");
    }
    assert!(house.read("public/g").await.is_none());
}

#[tokio::test]
async fn a_link_is_told_as_what_it_leads_to_and_goes_alone() {
    let (house, mut raw) = open().await;
    house.make_directory("d").await;
    house.put("d/f", "12345").await;
    let call = house.call("alice");
    for (name, target) in [("to_file", "d/f"), ("d/up", "/"), ("to_nothing", "nothing")] {
        let link = New::Symlink(Bytes::from(target.to_owned()));
        house.fs.make(&call, &at(name), link, &SetAttr::default()).await.expect("a link");
    }
    let ask = propfind("<D:prop><D:resourcetype/><D:getcontentlength/></D:prop>");
    let root = raw.alice("PROPFIND /", "Depth: 1\r\n", &ask).await;
    let told = root.text().split("<D:response>").find(|part| part.contains("/to_file<")).expect("it is told");
    assert!(told.contains(">5</D:getcontentlength>"), "{told}");
    assert!(hrefs(&root).contains(&"/to_nothing".to_owned()));
    let inner = raw.alice("PROPFIND /d/", "Depth: 1\r\n", &ask).await;
    assert!(hrefs(&inner).contains(&"/d/up/".to_owned()), "{:?}", hrefs(&inner));
    // The tree holds a link to what is above it: it is copied and removed as a link.
    assert_eq!(raw.alice("COPY /d/", "Destination: /e/\r\n", NOTHING).await.status, 201);
    let up = house.fs.walk(&call, &at("e/up"), Want::default()).await.expect("it is there");
    assert_eq!(up.attr.kind, weft_core::attr::Kind::Symlink);
    assert_eq!(raw.alice("DELETE /d/up/", "", NOTHING).await.status, 204);
    assert_eq!(raw.alice("DELETE /e/", "", NOTHING).await.status, 204);
    assert_eq!(house.read("d/f").await.as_deref(), Some(&b"12345"[..]));
}

#[tokio::test]
async fn properties_are_attributes_and_attributes_properties() {
    let (house, mut raw) = open().await;
    house.put("f", "x").await;
    let set =
        patch("<D:set><D:prop><x:plain>a &amp; b</x:plain><x:rich><x:b>1</x:b></x:rich></D:prop></D:set>");
    let answer = raw.alice("PROPPATCH /f", "", &set).await;
    assert_eq!((answer.status, answer.text().contains("200 OK")), (207, true));
    let call = house.call("alice");
    let put =
        TagEdit::Put { name: TagName::new("color").expect("good"), value: "red".into(), must: TagMust::Any };
    house.fs.tag(&call, &at("f"), &[put], &Guard::NONE).await.expect("it is set");
    let tags = house.fs.tags(&call, &at("f"), None).await.expect("alice may look").tags;
    let shown: Vec<(String, String)> = tags
        .iter()
        .map(|(name, value)| (name.as_bytes().escape_ascii().to_string(), value.escape_ascii().to_string()))
        .collect();
    assert_eq!(shown[1], ("{urn:x}plain".to_owned(), "a & b".to_owned()), "text is text at every door");
    assert!(shown[2].1.starts_with("<x:rich "), "{shown:?}");
    let all = raw.alice("PROPFIND /f", "Depth: 0\r\n", NOTHING).await;
    for part in [
        "<plain xmlns=\"urn:x\">a &amp; b</plain>",
        "<x:b>1</x:b>",
        "<color xmlns=\"weft:attribute\">red</color>",
    ] {
        assert!(all.text().contains(part), "{part}: {}", all.text());
    }
    // A copy has them all, and nothing of what it took the place of.
    house.put("g", "y").await;
    raw.alice("PROPPATCH /g", "", &patch("<D:set><D:prop><x:old>1</x:old></D:prop></D:set>")).await;
    assert_eq!(raw.alice("COPY /f", "Destination: /g\r\n", NOTHING).await.status, 204);
    let copied = house.fs.tags(&call, &at("g"), None).await.expect("alice may look").tags;
    assert_eq!(copied, tags);
}

#[tokio::test]
async fn a_change_of_properties_is_made_whole_or_not_at_all() {
    let (house, mut raw) = open().await;
    house.put("f", "x").await;
    let call = house.call("alice");
    let before = house.fs.walk(&call, &at("f"), Want::default()).await.expect("there").attr;
    let refused = patch("<D:set><D:prop><x:a>1</x:a><D:getetag>no</D:getetag></D:prop></D:set>");
    let answer = raw.alice("PROPPATCH /f", "", &refused).await;
    assert!(answer.text().contains("403 Forbidden") && answer.text().contains("424 Failed Dependency"));
    // The time can be set, the attributes are too many: nothing of it may stay.
    let big = "y".repeat(limits::TAG_VALUE_BYTES_MAX - 100);
    let large = patch(&format!(
        "<D:set><D:prop><D:getlastmodified>Sun, 06 Nov 1994 08:49:37 GMT</D:getlastmodified>\
         <x:a>{big}</x:a><x:b>{big}</x:b></D:prop></D:set>"
    ));
    let answer = raw.alice("PROPPATCH /f", "", &large).await;
    assert!(answer.status == 207 && !answer.text().contains("200 OK"), "{}", answer.status);
    let after = house.fs.walk(&call, &at("f"), Want::default()).await.expect("there").attr;
    assert_eq!(after.mtime, before.mtime);
    assert!(house.fs.tags(&call, &at("f"), None).await.expect("there").tags.is_empty());
    // What can be set is.
    let times = "<D:getlastmodified>Sun, 06 Nov 1994 08:49:37 GMT</D:getlastmodified>";
    let runs = "<executable xmlns='http://apache.org/dav/props/'>T</executable>";
    let answer = raw
        .alice("PROPPATCH /f", "", &patch(&format!("<D:set><D:prop>{times}{runs}</D:prop></D:set>")))
        .await;
    assert!(answer.text().contains("200 OK"));
    let after = house.fs.walk(&call, &at("f"), Want::default()).await.expect("there").attr;
    assert_eq!((after.mtime.seconds(), after.mode & 0o100), (784_111_777, 0o100));
    let seconds = raw
        .alice(
            "PROPPATCH /f",
            "",
            &patch("<D:set><D:prop><D:lastmodified>1700000000</D:lastmodified></D:prop></D:set>"),
        )
        .await;
    assert!(seconds.text().contains("200 OK"));
    let after = house.fs.walk(&call, &at("f"), Want::default()).await.expect("there").attr;
    assert_eq!(after.mtime.seconds(), 1_700_000_000);
}

#[tokio::test]
async fn a_copy_or_move_ends_whole_and_nothing_is_replaced_that_must_stay() {
    let (house, mut raw) = open().await;
    house.make_directory("d").await;
    house.make_directory("d/sub").await;
    house.put("d/sub/f", "deep").await;
    house.put("f", "file").await;
    let tag = raw.alice("HEAD /f", "", NOTHING).await.field("ETag").expect("a tag").to_owned();
    for (line, fields, status) in [
        ("COPY /f", "Destination: /g\r\n", 201),
        ("COPY /f", "Destination: /g\r\nOverwrite: F\r\n", 412),
        ("MOVE /f", "Destination: /g\r\nOverwrite: F\r\n", 412),
        ("COPY /f", "Destination: /g\r\n", 204),
        ("COPY /f", "Destination: /no/g\r\n", 409),
        ("MOVE /f", "Destination: /no/g\r\n", 409),
        ("COPY /none", "Destination: /g\r\n", 404),
        ("COPY /f", "Destination: /f\r\n", 403),
        ("COPY /d/", "Destination: /d/sub/x\r\n", 403),
        ("MOVE /d/", "Destination: /d/sub/x\r\n", 403),
        ("MOVE /d/sub/", "Destination: /d\r\n", 403),
        ("COPY /f", "Destination: http://elsewhere.example/g\r\n", 502),
        ("COPY /f", "Destination: ftp://localhost/g\r\n", 400),
        ("COPY /f", "", 400),
        ("COPY /f", "Destination: /g\r\nOverwrite: maybe\r\n", 400),
        ("MOVE /d/", "Destination: /e/\r\nDepth: 0\r\n", 400),
        ("COPY /d/", "Destination: http://localhost/e/\r\n", 201),
        ("COPY /d/", "Destination: /shallow/\r\nDepth: 0\r\n", 201),
        ("MOVE /e/", "Destination: /g\r\n", 204),
        ("MOVE /f", "Destination: /h\r\nX-OC-Mtime: 1700000000\r\n", 201),
    ] {
        let answer = raw.alice(line, fields, NOTHING).await;
        assert_eq!(
            (line, fields, answer.status),
            (line, fields, status),
            "{:?}",
            answer.body.escape_ascii().to_string()
        );
    }
    assert_eq!(house.read("g/sub/f").await.as_deref(), Some(&b"deep"[..]), "a directory took a file's place");
    assert_eq!(house.read("d/sub/f").await.as_deref(), Some(&b"deep"[..]));
    assert!(house.read("f").await.is_none() && house.read("e/sub/f").await.is_none());
    assert_eq!(raw.alice("HEAD /shallow/sub/", "", NOTHING).await.status, 404);
    let moved = raw.alice("HEAD /h", "", NOTHING).await;
    assert_eq!(moved.field("ETag"), Some(tag.as_str()), "what is moved is the same file");
    assert_eq!(moved.field("Last-Modified"), Some("Tue, 14 Nov 2023 22:13:20 GMT"));
}

#[tokio::test]
async fn nothing_is_taken_away_for_what_could_not_come() {
    let (house, mut raw) = open().await;
    for path in ["dest", "ro", "ro/d", "t"] {
        house.make_directory(path).await;
    }
    for path in ["dest/kept", "ro/d/f", "ro/f", "f", "t/f"] {
        house.put(path, "x").await;
    }
    let call = house.call("alice");
    for (name, new) in
        [("fifo", New::Fifo), ("link", New::Symlink("dest".into())), ("tl", New::Symlink("t".into()))]
    {
        house.fs.make(&call, &at(name), new, &SetAttr::default()).await.expect("made");
    }
    let mut acl = house.fs.policy(&call, &at("ro")).await.expect("alice may see it").acl;
    let denied = Rights::REMOVE | Rights::RENAME | Rights::READ;
    acl.entries.push(AclEntry::deny(Who::Caller(house.domain.name("alice")), denied));
    let edit = PolicyEdit { acl: Some(acl), ..PolicyEdit::default() };
    house.fs.protect(&call, &at("ro"), Scope::Subtree, &edit).await.expect("it is set");
    for (line, fields, status) in [
        ("MOVE /ro/d", "Destination: /dest\r\n", 403),
        ("COPY /ro/f", "Destination: /dest\r\n", 403),
        ("COPY /f", "Destination: /dest\r\nX-OC-Mtime: junk\r\n", 400),
        ("MOVE /f", "Destination: /dest\r\nX-OC-Mtime: junk\r\n", 400),
        ("COPY /fifo", "Destination: /dest\r\n", 501),
        ("COPY /link", "Destination: /dest\r\n", 403),
        ("COPY /t", "Destination: /tl/copy\r\n", 403),
        ("MOVE /t", "Destination: /tl/moved\r\n", 403),
    ] {
        let answer = raw.alice(line, fields, NOTHING).await;
        assert_eq!((line, fields, answer.status), (line, fields, status), "{}", answer.body.escape_ascii());
        assert!(house.read("dest/kept").await.is_some(), "{line}");
    }
    assert!(house.read("f").await.is_some() && house.read("t/f").await.is_some());
}

#[tokio::test]
async fn a_lock_tells_nobody_what_is_hidden_from_them() {
    let (house, mut raw) = open().await;
    house.make_directory("private/in").await;
    house.put("private/in/secret", "x").await;
    lock(&mut raw, "/private/in/secret", "0").await;
    for line in ["DELETE /", "DELETE /private", "PUT /private/in/secret", "MOVE /private"] {
        let answer = raw.ask(line, "Destination: /public/x\r\n", NOTHING).await;
        assert_eq!((line, answer.status), (line, 401));
        let bob = format!("{}Destination: /public/x\r\n", basic("bob", "b"));
        let answer = raw.ask(line, &bob, NOTHING).await;
        assert!(!answer.text().contains("in/secret") || line.starts_with("PUT"), "{line}: {}", answer.text());
    }
    let put = raw.ask("PUT /private/in/secret", &basic("bob", "b"), NOTHING).await;
    let none = raw.ask("PUT /private/in/none", &basic("bob", "b"), NOTHING).await;
    assert_eq!(put.status, none.status, "what is locked and what is not there look the same");
    assert!(house.read("private/in/secret").await.is_some());
}

#[tokio::test]
async fn what_of_a_tree_may_not_go_stays_and_is_told() {
    let (house, mut raw) = open().await;
    for path in ["d", "d/open", "d/kept"] {
        house.make_directory(path).await;
    }
    for path in ["d/open/f", "d/kept/f", "d/f"] {
        house.put(path, "x").await;
    }
    let call = house.call("alice");
    let mut acl = house.fs.policy(&call, &at("d/kept")).await.expect("alice may see it").acl;
    acl.entries.push(AclEntry::deny(Who::Caller(house.domain.name("alice")), Rights::REMOVE));
    let edit = PolicyEdit { acl: Some(acl), ..PolicyEdit::default() };
    house.fs.protect(&call, &at("d/kept"), Scope::Subtree, &edit).await.expect("it is set");
    let answer = raw.alice("DELETE /d/", "", NOTHING).await;
    assert_eq!((answer.status, hrefs(&answer)), (207, vec!["/d/kept/f".to_owned()]));
    assert!(answer.text().contains("403 Forbidden"));
    assert!(house.read("d/kept/f").await.is_some() && house.read("d/open/f").await.is_none());
    // The same before something is put there: it is not.
    house.make_directory("new").await;
    let answer = raw.alice("MOVE /new/", "Destination: /d/\r\n", NOTHING).await;
    assert_eq!(answer.status, 207);
    assert_eq!(raw.alice("HEAD /new/", "", NOTHING).await.status, 200, "the source is where it was");
}

#[tokio::test]
async fn a_lock_binds_who_does_not_show_it_and_whoever_it_is_not_of() {
    let (house, mut raw) = open().await;
    house.make_directory("d").await;
    house.put("d/f", "x").await;
    house.protect("d", Who::Caller(house.domain.name("bob")), Rights::ALL).await;
    let token = lock(&mut raw, "/d/f", "0").await;
    let locked = raw.alice("PUT /d/f", "", b"y").await;
    assert_eq!(locked.status, 423);
    assert!(locked.text().contains("<D:lock-token-submitted><D:href>/d/f</D:href>"), "{}", locked.text());
    let bob = basic("bob", "b");
    for line in ["PUT /d/f", "DELETE /d/f", "DELETE /d/", "MOVE /d/", "MOVE /d/f", "COPY /public/"] {
        let fields =
            "Destination: /d/f\r\n".replace("/d/f", if line.starts_with("COPY") { "/d/f" } else { "/x" });
        assert_eq!(raw.alice(line, &fields, NOTHING).await.status, 423, "{line}");
        let shown = format!("{bob}If: </d/f> ({token})\r\n{fields}");
        let status = raw.ask(line, &shown, NOTHING).await.status;
        assert!(matches!(status, 423 | 401 | 403 | 404), "{line}: a token proves nothing: {status}");
    }
    assert_eq!(raw.alice("PUT /d/other", "", b"y").await.status, 201, "it is locked alone");
    assert_eq!(raw.alice("GET /d/f", "", NOTHING).await.status, 200, "whoever reads is not bound");
    assert_eq!(raw.alice("COPY /d/f", "Destination: /d/g\r\n", NOTHING).await.status, 201);
    assert_eq!(raw.alice("PUT /d/f", &format!("If: ({token})\r\n"), b"y").await.status, 204);
    // Bob's lock would lie beside it; he is told where it lies, and not what its token is.
    let second = raw.ask("LOCK /d/f", &bob, &lock_info("shared")).await;
    assert_eq!((second.status, second.text().contains("<D:no-conflicting-lock>")), (423, true));
    let seen = raw.ask("PROPFIND /d/f", &format!("{bob}Depth: 0\r\n"), NOTHING).await;
    assert!(seen.text().contains("<D:activelock>") && !seen.text().contains("urn:uuid"), "{}", seen.text());
    let own = raw.alice("PROPFIND /d/f", "Depth: 0\r\n", NOTHING).await;
    assert!(own.text().contains(token.trim_matches(['<', '>'])) && own.text().contains("mailto:a@b"));
    assert_eq!(raw.ask("UNLOCK /d/f", &format!("{bob}Lock-Token: {token}\r\n"), NOTHING).await.status, 403);
    let elsewhere = raw.alice("UNLOCK /d/other", &format!("Lock-Token: {token}\r\n"), NOTHING).await;
    assert_eq!((elsewhere.status, elsewhere.text().contains("lock-token-matches-request-uri")), (409, true));
    assert_eq!(raw.alice("UNLOCK /d/f", "Lock-Token: <urn:uuid:forged>\r\n", NOTHING).await.status, 409);
    assert_eq!(raw.alice("UNLOCK /d/f", &format!("Lock-Token: {token}\r\n"), NOTHING).await.status, 204);
    assert_eq!(raw.alice("PUT /d/f", "", b"y").await.status, 204);
}

#[tokio::test]
async fn a_lock_of_a_directory_binds_its_names_and_a_deep_one_all_below() {
    let (house, mut raw) = open().await;
    house.make_directory("d").await;
    house.make_directory("d/e").await;
    house.put("d/e/f", "x").await;
    let token = lock(&mut raw, "/d", "0").await;
    assert_eq!(raw.alice("PUT /d/new", "", b"y").await.status, 423);
    assert_eq!(raw.alice("MKCOL /d/new", "", NOTHING).await.status, 423);
    assert_eq!(raw.alice("PUT /d/e/f", "", b"y").await.status, 204);
    assert_eq!(raw.alice("PUT /d/new", &format!("If: </d> ({token})\r\n"), b"y").await.status, 201);
    assert_eq!(raw.alice("PUT /d/new", "", b"z").await.status, 204, "what is there may be written");
    assert_eq!(raw.alice("UNLOCK /d", &format!("Lock-Token: {token}\r\n"), NOTHING).await.status, 204);
    let token = lock(&mut raw, "/d/", "infinity").await;
    assert_eq!(raw.alice("PUT /d/e/f", "", b"y").await.status, 423);
    let refreshed =
        raw.alice("LOCK /d/e/f", &format!("If: ({token})\r\nTimeout: Second-9\r\n"), NOTHING).await;
    assert_eq!((refreshed.status, refreshed.text().contains("Second-")), (200, true));
    assert_eq!(raw.alice("LOCK /public", &format!("If: </d> ({token})\r\n"), NOTHING).await.status, 412);
    assert_eq!(raw.alice("DELETE /d", &format!("If: ({token})\r\n"), NOTHING).await.status, 204);
    assert_eq!(raw.alice("MKCOL /d", "", NOTHING).await.status, 201, "what is gone is locked no more");
}

#[tokio::test]
async fn a_lock_of_a_name_that_nobody_has_makes_an_empty_file() {
    let (house, mut raw) = open().await;
    let token = lock(&mut raw, "/new", "0").await;
    assert_eq!(house.read("new").await.as_deref(), Some(NOTHING));
    assert_eq!(raw.alice("PUT /new", "", b"y").await.status, 423);
    assert_eq!(raw.alice("PUT /new", &format!("If: ({token})\r\n"), b"y").await.status, 204);
    for (line, status) in [("LOCK /none/new", 409), ("LOCK /dir/", 409)] {
        assert_eq!(raw.alice(line, "", &lock_info("exclusive")).await.status, status, "{line}");
    }
    assert_eq!(raw.alice("MKCOL /dir/", "", NOTHING).await.status, 201, "no lock is left of it");
    let long =
        raw.alice("LOCK /new2", "Timeout: Infinite, Second-4100000000\r\n", &lock_info("shared")).await;
    assert!(long.text().contains(&format!("Second-{}<", limits::NAME_LOCK_LASTS_MAX.as_secs())));
}

#[tokio::test]
async fn an_upload_that_began_before_a_lock_is_not_shown_after_it() {
    let (house, mut raw) = open().await;
    house.put("f", "old").await;
    let mut slow = Raw::connect(house.address).await;
    let head = format!(
        "PUT /f HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: 6\r\n\r\nnew",
        basic("alice", crate::house::PASSWORD)
    );
    slow.send(head).await;
    // It has begun once its stage is there.
    while house.stages().await == 0 {
        tokio::task::yield_now().await;
    }
    lock(&mut raw, "/f", "0").await;
    slow.send("new").await;
    assert_eq!(slow.answer(false).await.status, 423);
    assert_eq!(house.read("f").await.as_deref(), Some(&b"old"[..]));
    assert_eq!(house.stages().await, 0, "nothing is left of it");
}

#[tokio::test]
async fn what_if_says_of_a_version_holds_when_the_change_is_made() {
    let (house, mut raw) = open().await;
    house.put("f", "1").await;
    let tag = raw.alice("HEAD /f", "", NOTHING).await.field("ETag").expect("a tag").to_owned();
    assert_eq!(raw.alice("PUT /f", &format!("If: ([{tag}])\r\n"), b"2").await.status, 204);
    assert_eq!(raw.alice("PUT /f", &format!("If: ([{tag}])\r\n"), b"3").await.status, 412);
    assert_eq!(raw.alice("DELETE /f", &format!("If: ([{tag}])\r\n"), NOTHING).await.status, 412);
    assert_eq!(raw.alice("PUT /f", &format!("If: (Not [{tag}])\r\n"), b"4").await.status, 204);
    assert_eq!(raw.alice("PUT /f", "If: (<DAV:no-lock>)\r\n", b"5").await.status, 412);
    assert_eq!(raw.alice("PUT /f", "If: (Not <DAV:no-lock>)\r\n", b"6").await.status, 204);
    assert_eq!(
        raw.alice("PUT /f", "If: <http://elsewhere.example/f> (Not <DAV:no-lock>)\r\n", b"7").await.status,
        412
    );
    assert_eq!(raw.alice("PUT /f", "If: nonsense\r\n", b"8").await.status, 400);
    assert_eq!(house.read("f").await.as_deref(), Some(&b"6"[..]));
}

#[tokio::test]
async fn xml_that_would_grow_is_refused_and_the_connection_goes_on() {
    let (_house, mut raw) = open().await;
    let bomb =
        "<!DOCTYPE a [<!ENTITY b 'cccccccccc'><!ENTITY d '&b;&b;&b;'>]><propfind xmlns='DAV:'>&d;</propfind>";
    let deep = "<a>".repeat(100_000 / 3);
    let many = propfind(&format!("<D:prop>{}</D:prop>", "<x:a/>".repeat(30_000)));
    for (body, status) in
        [(bomb.as_bytes(), 400), (deep.as_bytes(), 400), (&many[..], 400), (b"<", 400), (b"\xff", 400)]
    {
        assert_eq!(raw.alice("PROPFIND /", "Depth: 0\r\n", body).await.status, status);
    }
    let large = vec![b' '; limits::DAV_XML_BYTES_MAX + 1];
    let answer = raw.alice("PROPFIND /", "Depth: 0\r\n", &large).await;
    assert_eq!(answer.status, 413);
    let mut raw = Raw::connect(_house.address).await;
    raw.send(format!(
        "PROPFIND / HTTP/1.1\r\nHost: localhost\r\n{}Transfer-Encoding: chunked\r\n\r\n",
        basic("alice", crate::house::PASSWORD)
    ))
    .await;
    for _ in 0..=limits::DAV_XML_BYTES_MAX / 1024 {
        raw.send(format!("400\r\n{}\r\n", " ".repeat(1024))).await;
    }
    assert_eq!(raw.answer(false).await.status, 413);
}

#[tokio::test]
async fn who_replaces_a_file_of_another_is_told_that_the_time_was_not_taken() {
    let (house, mut raw) = open().await;
    house.put("f", "alice's").await;
    house.protect("", Who::Caller(house.domain.name("bob")), Rights::READING | Rights::WRITING).await;
    for line in ["PUT /f", "PUT /bobs"] {
        let fields = format!("{}X-OC-Mtime: 1500000000\r\n", basic("bob", "b"));
        let put = raw.ask(line, &fields, b"x").await;
        let (status, accepted) = if line == "PUT /f" { (204, None) } else { (201, Some("accepted")) };
        assert_eq!((put.status, put.field("X-OC-MTime")), (status, accepted), "{line}: {}", put.text());
        let is_said = put.field("Last-Modified") == Some("Fri, 14 Jul 2017 02:40:00 GMT");
        assert_eq!(is_said, accepted.is_some(), "{line}");
    }
    let fields =
        format!("{}Destination: /bobs\r\nX-OC-Mtime: 1700000000\r\n", basic("alice", crate::house::PASSWORD));
    assert_eq!(raw.ask("COPY /f", &fields, b"").await.status, 204, "alice owns the directory, and its ACL");
    let fields = format!("{}Destination: /f\r\nX-OC-Mtime: 1500000000\r\n", basic("bob", "b"));
    assert_eq!(raw.ask("COPY /bobs", &fields, b"").await.status, 204);
}

#[tokio::test]
async fn times_that_a_client_says_are_kept_and_space_is_told_to_who_asks() {
    let (house, mut raw) = open().await;
    let put = raw.alice("PUT /f", "X-OC-Mtime: 1700000000.25\r\n", b"x").await;
    assert_eq!((put.status, put.field("X-OC-MTime")), (201, Some("accepted")));
    assert_eq!(put.field("Last-Modified"), Some("Tue, 14 Nov 2023 22:13:20 GMT"));
    assert_eq!(raw.alice("PUT /f", "X-OC-Mtime: soon\r\n", b"y").await.status, 400);
    assert_eq!(house.read("f").await.as_deref(), Some(&b"x"[..]));
    house.make_directory("small").await;
    house.protect("small", Who::Caller(house.domain.name("bob")), Rights::READ).await;
    house.limit("small", 1000).await;
    house.put("small/f", vec![b'x'; 400]).await;
    let ask = propfind("<D:prop><D:quota-available-bytes/><D:quota-used-bytes/></D:prop>");
    let told = raw.alice("PROPFIND /small/", "Depth: 0\r\n", &ask).await;
    assert!(
        told.text().contains("<D:quota-available-bytes>600<")
            && told.text().contains("<D:quota-used-bytes>400<"),
        "{}",
        told.text()
    );
    let unasked = raw.alice("PROPFIND /small/", "Depth: 0\r\n", NOTHING).await;
    assert!(!unasked.text().contains("quota"));
}
