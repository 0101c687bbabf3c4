//! Listings: exact, in order, paged, safe to show.

use crate::house::House;
use crate::raw::Raw;

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("it is JSON")
}

fn hrefs(listing: &serde_json::Value) -> Vec<String> {
    let entries = listing["entries"].as_array().expect("entries");
    entries.iter().map(|entry| entry["href"].as_str().expect("a link").to_owned()).collect()
}

const JSON: &str = "Accept: application/json\r\n";

#[tokio::test]
async fn a_listing_in_pages_is_the_whole_in_name_order() {
    let house = House::open().await;
    for number in 0..2500 {
        house.put(&format!("public/f{number:04}"), "x").await;
    }
    let mut raw = Raw::connect(house.address).await;
    let whole = hrefs(&json(raw.alice("GET /public/", JSON, b"").await.text()));
    assert_eq!(whole.len(), 2500);
    assert!(whole.is_sorted());
    let (mut paged, mut target) = (Vec::new(), "/public/?limit=700".to_owned());
    loop {
        let page = json(raw.alice(&format!("GET {target}"), JSON, b"").await.text());
        paged.extend(hrefs(&page));
        match page["next"].as_str() {
            Some(next) => target = format!("/public/{next}"),
            None => break,
        }
    }
    assert_eq!(paged, whole);
    let after = json(raw.alice("GET /public/?after=f2497", JSON, b"").await.text());
    assert_eq!(hrefs(&after), ["./f2498", "./f2499"]);
    let html = raw.alice("GET /public/", "", b"").await;
    assert_eq!(html.text().matches("<tr>").count(), 2502, "a heading, the parent and every name");
    // What asks for JSON by the query alone goes on with JSON.
    let page = json(raw.alice("GET /public/?format=json&limit=2498", "", b"").await.text());
    let next = page["next"].as_str().expect("there is more");
    let page = json(raw.alice(&format!("GET /public/{next}"), "", b"").await.text());
    assert_eq!(hrefs(&page), ["./f2498", "./f2499"]);
    for bad in ["limit=0", "limit=x", "limit=-1", "after=a%2fb", "after=%zz", "after=.."] {
        assert_eq!(raw.alice(&format!("GET /public/?{bad}"), JSON, b"").await.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn links_lead_to_names_of_any_bytes_and_markup_in_names_is_text() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    let names = [
        "%FF%FE",
        "a%20b",
        "%3Cscript%3Ealert(1)%3C%2Fx",
        "caf%C3%A9",
        "cafe%CC%81",
        "%22%27%26",
        "x%3Ay",
        "%5Cback",
        "q%3Fq%23h",
        "%25%32%35",
        "%0A",
        "...",
    ];
    let mut made = 0;
    for name in names {
        let answer = raw.alice(&format!("PUT /public/{name}"), "", name.as_bytes()).await;
        assert_eq!(answer.status, if name.contains("%2F") { 400 } else { 201 }, "{name}");
        made += usize::from(answer.status == 201);
    }
    let html = raw.alice("GET /public/", "Accept: text/html\r\n", b"").await;
    assert!(
        html.field("Content-Security-Policy").is_some_and(|policy| policy.starts_with("default-src 'none'"))
    );
    assert_eq!(html.field("Referrer-Policy"), Some("no-referrer"));
    let mut bodies = std::collections::BTreeSet::new();
    for href in hrefs(&json(raw.alice("GET /public/", JSON, b"").await.text())) {
        assert!(html.text().contains(&format!("<a href=\"{href}\">")), "{href}");
        let path = format!("/public/{}", href.strip_prefix("./").expect("relative"));
        if !path.ends_with('/') {
            let answer = raw.alice(&format!("GET {path}"), "", b"").await;
            assert_eq!(answer.status, 200, "{path}");
            bodies.insert(answer.body);
        }
    }
    assert_eq!(bodies.len(), made, "look-alikes are distinct files");
    raw.alice("PUT /public/%3Cb%3E.html", "", b"<script>").await;
    let html = raw.alice("GET /public/", "", b"").await;
    assert!(html.text().contains("&lt;b&gt;.html") && !html.text().contains("<b>.html"));
    let page = raw.alice("GET /public/%3Cb%3E.html", "", b"").await;
    assert_eq!(page.field("Content-Disposition"), Some("attachment; filename*=UTF-8''%3Cb%3E.html"));
    assert!(page.field("Content-Security-Policy").is_some_and(|policy| policy.starts_with("sandbox")));
    assert_eq!(page.field("X-Content-Type-Options"), Some("nosniff"));
}

#[tokio::test]
async fn a_listing_is_there_and_has_no_tag_for_conditions() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    for (fields, status) in [
        ("If-None-Match: *", 304),
        ("If-None-Match: \"x\"", 200),
        ("If-Match: *", 200),
        ("If-Match: \"x\"", 412),
        ("If-Modified-Since: Sat, 01 Jan 2050 00:00:00 GMT", 200),
    ] {
        let answer = raw.alice("GET /public/", &format!("{fields}\r\n"), b"").await;
        assert_eq!(answer.status, status, "{fields}");
    }
}

#[tokio::test]
async fn directories_are_made_redirected_to_and_removed_with_what_is_in_them() {
    let house = House::open().await;
    let mut raw = Raw::connect(house.address).await;
    assert_eq!(raw.alice("MKCOL /d%20d", "", b"").await.status, 201);
    for refused in ["MKCOL /d%20d/", "PUT /d%20d/"] {
        let answer = raw.alice(refused, "", b"").await;
        let allowed = answer.field("Allow").expect("it says what can be asked instead");
        let method = refused.split(' ').next().expect("the method comes first");
        assert_eq!((answer.status, allowed.contains("DELETE"), allowed.contains(method)), (405, true, false));
    }
    assert_eq!(raw.alice("MKCOL /no/d", "", b"").await.status, 409);
    assert_eq!(raw.alice("MKCOL /e", "", b"<x/>").await.status, 415);
    let moved = raw.alice("GET /d%20d?limit=5", "", b"").await;
    assert_eq!((moved.status, moved.field("Location")), (301, Some("/d%20d/?limit=5")));
    assert_eq!(moved.field("Cache-Control"), Some("no-cache"), "a file may have the name one day");
    assert_eq!(raw.alice("PUT /d%20d/f", "", b"x").await.status, 201);
    assert_eq!(raw.alice("PUT /d%20d", "", b"x").await.status, 409);
    assert_eq!(raw.alice("PUT /d%20d/f/g", "", b"x").await.status, 409);
    assert_eq!(raw.alice("DELETE /d%20d/f/", "", b"").await.status, 404, "it is a file");
    assert_eq!(raw.alice("HEAD /d%20d/", "", b"").await.status, 200);
    assert_eq!(raw.alice("DELETE /d%20d/", "", b"").await.status, 204);
    assert_eq!(raw.alice("GET /d%20d/", "", b"").await.status, 404);
}
