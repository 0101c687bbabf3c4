//! The page: what a browser shows and sends, without one. `weft` has the tests with a real one.

use weft_core::Rights;
use weft_core::acl::Who;
use weft_core::service::Revoke;

use crate::house::{House, PASSWORD};
use crate::raw::{Answer, Raw};

/// What browsers say they would have.
const BROWSER: &str = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n";
const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

/// Somebody who logged in.
struct Login {
    cookie: String,
    guard: String,
}

impl Login {
    async fn of(raw: &mut Raw, user: &str, password: &str) -> Self {
        let body = format!("user={user}&password={}", password.replace(' ', "+"));
        let answer = raw.ask("POST /public/?page=login", FORM, body.as_bytes()).await;
        assert_eq!((answer.status, answer.field("Location")), (303, Some("/public/")), "{}", answer.text());
        let cookie = cookies(&answer);
        let page = raw.ask("GET /public/", &format!("{BROWSER}Cookie: {cookie}\r\n"), b"").await;
        let guard = page.text().split("data-guard=\"").nth(1).and_then(|rest| rest.split('"').next());
        Self { cookie, guard: guard.expect("the page has a guard").to_owned() }
    }

    fn fields(&self) -> String {
        format!("Cookie: {}\r\n", self.cookie)
    }

    fn guarded(&self) -> String {
        format!("Cookie: {}\r\nX-Weft-Guard: {}\r\n", self.cookie, self.guard)
    }
}

/// Returns the cookies that an answer sets, as a browser would send them.
fn cookies(answer: &Answer) -> String {
    let set = answer.all("Set-Cookie");
    assert!(set.iter().all(|cookie| cookie.contains("; HttpOnly; SameSite=Strict")), "{set:?}");
    let kept = set.iter().filter(|cookie| !cookie.contains("Max-Age=0"));
    let pairs: Vec<&str> = kept.filter_map(|cookie| cookie.split(';').next()).collect();
    pairs.join("; ")
}

#[tokio::test]
async fn a_login_shows_what_its_user_may_see_and_ends_with_the_logout() {
    let house = House::open().await;
    house.put("private/secret", "hidden").await;
    let mut raw = Raw::connect(house.address).await;
    let asked = raw.ask("GET /private/secret", BROWSER, b"").await;
    assert_eq!(asked.status, 401);
    assert!(asked.text().contains("name=\"password\""), "a browser is shown the form");
    assert!(asked.all("WWW-Authenticate").iter().all(|scheme| !scheme.starts_with("Basic")));
    let login = Login::of(&mut raw, "alice", PASSWORD).await;
    let shown = raw.ask("GET /private/secret", &login.fields(), b"").await;
    assert_eq!((shown.status, shown.text()), (200, "hidden"));
    let page = raw.ask("GET /private/", &(login.fields() + BROWSER), b"").await;
    assert!(page.text().contains(">alice<") && page.text().contains("Log out"), "{}", page.text());
    let body = format!("guard={}", login.guard);
    let out = raw.ask("POST /private/?page=logout", &(login.fields() + FORM), body.as_bytes()).await;
    assert_eq!((out.status, out.field("Location")), (303, Some("/private/")));
    assert!(out.all("Set-Cookie").iter().all(|cookie| cookie.contains("=; Max-Age=0;")));
    // Whoever kept the cookie has nothing: the credential itself is revoked.
    let kept = raw.ask("GET /private/secret", &login.fields(), b"").await;
    assert_eq!(kept.status, 401);
    let public = raw.ask("GET /public/", &(login.fields() + BROWSER), b"").await;
    assert_eq!(public.status, 200, "what everybody may see is shown still");
    assert!(public.text().contains("Log in"));
}

#[tokio::test]
async fn a_wrong_password_and_a_revoked_login_are_asked_for_another() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    let wrong = raw.ask("POST /?page=login", &format!("{FORM}{BROWSER}"), b"user=alice&password=x").await;
    assert_eq!(wrong.status, 401);
    assert!(wrong.text().contains("the user or the password is wrong") || wrong.text().contains("wrong"));
    assert!(wrong.text().contains("name=\"password\"") && wrong.all("Set-Cookie").is_empty());
    let login = Login::of(&mut raw, "alice", PASSWORD).await;
    assert_eq!(raw.ask("GET /private/", &login.fields(), b"").await.status, 200);
    house.authority_revoke(&Revoke::Caller(house.domain.name("alice"))).await;
    assert_eq!(raw.ask("GET /private/", &login.fields(), b"").await.status, 401, "on a running connection");
}

#[tokio::test]
async fn what_an_earlier_login_left_behind_keeps_nobody_from_the_next() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    let body = format!("user=alice&password={}", PASSWORD.replace(' ', "+"));
    let fields = format!("{FORM}Cookie: weft0=old; weft1=leftover\r\n");
    let answer = raw.ask("POST /?page=login", &fields, body.as_bytes()).await;
    assert_eq!(answer.status, 303);
    let set = answer.all("Set-Cookie");
    assert!(set[0].starts_with("weft0=") && !set[0].contains("Max-Age=0"), "{set:?}");
    assert!(set[1..].iter().all(|cookie| cookie.contains("=; Max-Age=0;")) && set.len() > 1, "{set:?}");
    let out = raw.ask("POST /?page=logout", &fields, b"").await;
    assert_eq!((out.status, out.all("Set-Cookie").len()), (303, set.len()), "a login that is over ends");
}

#[tokio::test]
async fn a_cookie_alone_changes_nothing() {
    let house = House::open().await;
    house.put("public/f", "1").await;
    let mut raw = Raw::connect(house.address).await;
    let login = Login::of(&mut raw, "alice", PASSWORD).await;
    let other = Login::of(&mut raw, "bob", "b").await;
    let changes: [(&str, &str, &[u8]); 7] = [
        ("PUT /public/f", "", b"2"),
        ("MKCOL /public/d", "", b""),
        ("DELETE /public/f", "", b""),
        ("MOVE /public/f", "Destination: /public/g\r\n", b""),
        ("COPY /public/f", "Destination: /public/g\r\n", b""),
        ("LOCK /public/f", "", b""),
        ("PROPPATCH /public/f", "", b"<x/>"),
    ];
    let foreign = format!("{}X-Weft-Guard: {}\r\n", login.fields(), other.guard);
    for fields in [login.fields(), foreign] {
        for (request, more, body) in changes {
            let answer = raw.ask(request, &format!("{fields}{more}"), body).await;
            assert_eq!(answer.status, 403, "{request}: {}", answer.text());
            raw = Raw::connect(house.address).await;
        }
    }
    assert_eq!(house.read("public/f").await.as_deref(), Some(&b"1"[..]));
    assert_eq!(raw.ask("PUT /public/f", &login.guarded(), b"2").await.status, 204);
    assert_eq!(house.read("public/f").await.as_deref(), Some(&b"2"[..]));
    // Bob is known, and may not.
    assert_eq!(raw.ask("PUT /public/f", &other.guarded(), b"3").await.status, 403);
    // Who says something in so many words is taken at that, whatever cookies come along.
    let both = format!("{}Authorization: Bearer {}\r\n", other.fields(), house.token());
    assert_eq!(raw.ask("PUT /public/f", &both, b"4").await.status, 204);
}

#[tokio::test]
async fn a_form_of_another_site_is_refused_and_a_login_leads_nowhere_else() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    let body = format!("user=alice&password={}", PASSWORD.replace(' ', "+"));
    for (origin, status) in [
        ("http://localhost".to_owned(), 303),
        ("https://evil.example".to_owned(), 403),
        ("http://localhost.evil.example".to_owned(), 403),
        ("null".to_owned(), 403),
    ] {
        let fields = format!("{FORM}Origin: {origin}\r\n");
        let answer = raw.ask("POST /public/?page=login&next=//evil.example/", &fields, body.as_bytes()).await;
        assert_eq!(answer.status, status, "{origin}");
        assert!(answer.field("Location").is_none_or(|to| to == "/public/"));
        assert_eq!(answer.all("Set-Cookie").is_empty(), status == 403);
    }
    let login = Login::of(&mut raw, "alice", PASSWORD).await;
    for guard in ["", "guard=", "guard=00000000000000000000000000000000"] {
        let out = raw.ask("POST /?page=logout", &(login.fields() + FORM), guard.as_bytes()).await;
        assert_eq!(out.status, 403, "{guard}: nobody else logs one out");
    }
    assert_eq!(raw.ask("GET /private/", &login.fields(), b"").await.status, 200);
    for (target, status) in [("/", 405), ("/public/", 405), ("/?page=about", 405), ("/?page=x", 400)] {
        assert_eq!(raw.ask(&format!("POST {target}"), FORM, b"").await.status, status, "{target}");
    }
    let long = vec![b'x'; 9 << 10];
    assert_eq!(raw.ask("POST /?page=login", FORM, &long).await.status, 413);
}

#[tokio::test]
async fn a_page_says_what_is_known_and_why_and_shows_texts_and_pictures() {
    let house = House::open().await;
    house.put("public/t.txt", format!("<script>alert(1)</script>\n{}", "x".repeat(100_000))).await;
    house.put("public/p.png", "not looked into").await;
    house.put("public/b.bin", vec![0u8; 100]).await;
    let mut raw = Raw::connect(house.address).await;
    let text = raw.ask("GET /public/t.txt?page=about", BROWSER, b"").await;
    assert_eq!(text.status, 200);
    assert!(text.text().contains("&lt;script&gt;alert(1)") && !text.text().contains("<script>alert"));
    assert!(text.text().contains("the first 64 KiB of 98 KiB") && text.text().contains("100026 bytes"));
    assert!(text.text().contains("What you may do here") && text.text().contains("anyone"));
    let picture = raw.ask("GET /public/p.png?page=about", BROWSER, b"").await;
    assert!(picture.text().contains("<img src=\"./p.png\""));
    let binary = raw.ask("GET /public/b.bin?page=about", BROWSER, b"").await;
    assert!(!binary.text().contains("<pre>") && !binary.text().contains("<img"));
    for directory in ["/public?page=about", "/public/?page=about"] {
        let page = raw.ask(&format!("GET {directory}"), BROWSER, b"").await;
        assert!(page.text().contains("<th>Entries<td>3"), "{directory}");
    }
    for (target, status) in
        [("/private/?page=about", 401), ("/public/none?page=about", 404), ("/public/?page=other", 400)]
    {
        let answer = raw.ask(&format!("GET {target}"), BROWSER, b"").await;
        assert_eq!(answer.status, status, "{target}");
        assert_eq!(answer.field("Content-Type"), Some("text/html; charset=utf-8"));
        assert!(answer.text().contains("Trace"), "{}", answer.text());
    }
}

#[tokio::test]
async fn every_page_runs_its_own_script_alone_and_loads_nothing_from_elsewhere() {
    let house = House::open().await;
    house.put("public/f.txt", "text").await;
    let mut raw = Raw::connect(house.address).await;
    for target in ["/public/", "/public/f.txt?page=about", "/?page=login", "/private/"] {
        let page = raw.ask(&format!("GET {target}"), BROWSER, b"").await;
        let policy = page.field("Content-Security-Policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{target}: {policy}");
        assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"), "{target}");
        for elsewhere in ["src=\"http", "href=\"http", "url(", "@import", " on"] {
            let text = page.text();
            let markup = text.split("<script>").next().expect("the page");
            let markup = markup.split("</style>").nth(1).expect("the style comes first");
            assert!(!markup.contains(&format!("<{elsewhere}")) && !markup.contains(" onclick"), "{target}");
            assert!(!markup.contains(elsewhere) || elsewhere == " on", "{target}: {elsewhere}");
        }
    }
}

#[tokio::test]
async fn a_listing_is_shown_in_the_order_that_was_asked_for() {
    let house = House::open().await;
    for (name, size) in [("b", 3000), ("a", 20), ("c", 100)] {
        house.put(&format!("public/{name}"), vec![b'x'; size]).await;
    }
    house.make_directory("public/z").await;
    let mut raw = Raw::connect(house.address).await;
    for (sort, order) in [
        ("", "abcz"),
        ("?sort=name", "abcz"),
        ("?sort=-name", "zcba"),
        ("?sort=size", "zacb"),
        ("?sort=-size", "bcaz"),
    ] {
        let page = raw.ask(&format!("GET /public/{sort}"), BROWSER, b"").await;
        let rows = page.text().split("<tbody>").nth(1).expect("a table").to_owned();
        let names: String =
            rows.split("<td><a href=\"./").skip(1).filter_map(|row| row.chars().next()).collect();
        assert_eq!(names, order, "{sort}");
    }
    assert_eq!(raw.ask("GET /public/?sort=colour", BROWSER, b"").await.status, 400);
}

#[tokio::test]
async fn people_turn_pages_and_of_another_order_they_see_the_first() {
    let house = House::open().await;
    for number in 0..1100 {
        house.put(&format!("public/f{number:04}"), vec![b'x'; 2000 - number]).await;
    }
    let mut raw = Raw::connect(house.address).await;
    let page = raw.ask("GET /public/", BROWSER, b"").await;
    assert_eq!(page.text().matches("<tr>").count(), 1002);
    let next =
        page.text().rsplit("<p><a href=\"").next().and_then(|rest| rest.split('"').next()).expect("more");
    let page = raw.ask(&format!("GET /public/{}", next.replace("&amp;", "&")), BROWSER, b"").await;
    assert_eq!(page.text().matches("<tr>").count(), 102);
    let page = raw.ask("GET /public/?sort=size", BROWSER, b"").await;
    assert_eq!(page.text().matches("<tr>").count(), 1002);
    assert!(page.text().contains("the first 1000 of 1100"));
    assert!(page.text().contains("./f1099\"") && !page.text().contains("./f0000\""));
    let page = raw.ask("GET /public/?sort=size&limit=2", BROWSER, b"").await;
    assert!(page.text().contains("the first 2 of 1100") && page.text().matches("<tr>").count() == 4);
}

#[tokio::test]
async fn what_is_offered_is_what_may_be_done() {
    let house = House::open().await;
    house.protect("drop", Who::Caller(house.domain.name("bob")), Rights::WRITING).await;
    let mut raw = Raw::connect(house.address).await;
    let stranger = raw.ask("GET /public/", BROWSER, b"").await;
    assert!(stranger.text().contains("data-may=\"\""), "{}", stranger.text());
    let login = Login::of(&mut raw, "bob", "b").await;
    let page = raw.ask("GET /drop/", &(login.fields() + BROWSER), b"").await;
    assert!(page.text().contains("data-may=\"insert rename remove\""), "{}", page.text());
}
