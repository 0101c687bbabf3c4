//! Saying who one is, in a browser: a password becomes a credential in a cookie.

use std::fmt::Write;

use weft_core::proof::Attenuation;
use weft_core::service::{Evidence, Revoke, Secret};
use weft_core::{Error, ErrorKind, limits};

use super::guard::Sender;
use super::rules::RULES;
use super::{frame, guard};
use crate::answer::{Answer, Problem};
use crate::codec::target::Path;
use crate::codec::{cookie, form};
use crate::exchange::{Exchange, Served};
use crate::identity::Shown;
use crate::map::Act;
use crate::status::Status;

/// A login is asked for without a path: it leads back to where it was asked.
const FIELDS: &str = "Cache-Control: no-store\r\nReferrer-Policy: same-origin\r\n";

/// Answers with the form.
pub async fn form(x: Exchange<'_, '_>) -> Served {
    let mut text = String::new();
    frame::begin("Log in", &mut text);
    frame::head(&x, &mut text);
    write_form(&mut text);
    frame::end(&mut text);
    let fields = |answer: &mut Answer| _ = answer.fixed(&RULES).fixed(FIELDS);
    x.talk.reply(Status::OK, fields, Some((super::MEDIA, text.into_bytes()))).await
}

/// Writes the form.
pub fn write_form(out: &mut String) {
    let _ = writeln!(
        out,
        "<form class=\"login\" method=\"post\" action=\"?page=login\">\
         <label>User <input name=\"user\" autocomplete=\"username\" autocapitalize=\"none\" required></label>\
         <label>Password <input name=\"password\" type=\"password\" autocomplete=\"current-password\" required></label>\
         <button>Log in</button></form>"
    );
}

/// Answers the form.
pub async fn login(mut x: Exchange<'_, '_>, body: &[u8]) -> Served {
    if guard::sender(x.head)? == Sender::Foreign {
        return Err(guard::foreign().into());
    }
    let (user, password) = (form::field(body, "user")?, Secret::new(form::field(body, "password")?));
    let evidence = Evidence::Password { user, password };
    let authority = &x.talk.http.services.authority;
    let life = limits::CREDENTIAL_LIFE;
    let login = x.within(authority.login(&evidence, &Attenuation::NONE, life, x.call.from)).await;
    let token = login.map_err(|error| Problem::of(&error, Act::Read))?.to_token();
    let pieces = cookie::split(&token);
    // What an earlier login left behind would be taken for more pieces of this one.
    let left = forgotten(&x, pieces.len());
    let kept = pieces
        .into_iter()
        .map(|(name, value)| format!("{name}={value}; Max-Age={}{}", life.as_secs(), attributes(&x)));
    let cookies: Vec<String> = kept.chain(left).collect();
    back(&mut x, &cookies).await
}

/// Ends the login that a request was sent under, and its credential with it.
pub async fn logout(mut x: Exchange<'_, '_>) -> Served {
    if !matches!(x.shown, Shown::Cookie(_)) {
        return back(&mut x, &[]).await;
    }
    if !x.call.caller.is_anyone() {
        let what = Revoke::Credential(x.call.caller.credential());
        let revoked = x.within(x.talk.http.services.authority.revoke(&x.call.caller, &what)).await;
        // One that has ended by itself is as good as revoked.
        match revoked {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Problem::of(&error, Act::Read).into());
            }
            _ => {}
        }
    }
    let cookies = forgotten(&x, 0);
    back(&mut x, &cookies).await
}

/// Returns the cookies that end those of a login, from a piece on.
fn forgotten(x: &Exchange<'_, '_>, from: usize) -> Vec<String> {
    let gone = |piece| format!("{}=; Max-Age=0{}", cookie::name_of(piece), attributes(x));
    (from..cookie::PIECES_MAX).map(gone).collect()
}

/// No script reads it, no other site sends it, and over TLS it never leaves in the clear.
fn attributes(x: &Exchange<'_, '_>) -> &'static str {
    match x.talk.is_reached_securely() {
        true => "; Path=/; HttpOnly; SameSite=Strict; Secure",
        false => "; Path=/; HttpOnly; SameSite=Strict",
    }
}

/// Leads back to the page that the form was on: the path of the request, whatever its query says.
async fn back(x: &mut Exchange<'_, '_>, cookies: &[String]) -> Served {
    let location = Path { path: x.path.path.clone(), is_directory: x.path.is_directory }.encode();
    let fields = |answer: &mut Answer| {
        for cookie in cookies {
            answer.field("Set-Cookie", cookie);
        }
        answer.field("Location", location).fixed("Cache-Control: no-store\r\n");
    };
    x.talk.reply(Status::SEE_OTHER, fields, None).await
}

/// Returns whether an error says that what a cookie holds proves nothing any more.
pub fn is_over(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unauthenticated | ErrorKind::Expired | ErrorKind::Revoked)
}
