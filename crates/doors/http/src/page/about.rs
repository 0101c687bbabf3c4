//! What is known of a name: its attributes, what one may do with it and why, and a look at it.

use std::fmt::Write;

use weft_core::attr::{Attr, Kind};
use weft_core::form::{Want, Why};
use weft_core::{CallerId, Rights};

use super::frame::{self, bytes, escape};
use super::rules::RULES;
use super::{links, preview};
use crate::answer::Answer;
use crate::codec::condition::{entity_tag, format_time};
use crate::codec::target::encode_name;
use crate::exchange::{Exchange, Served};
use crate::list::kind_name;
use crate::map::Act;
use crate::status::Status;
use crate::webdav::dead;

const FIELDS: &str = "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n";

/// Answers with what is known.
pub async fn serve(mut x: Exchange<'_, '_>) -> Served {
    let services = &x.talk.http.services;
    let want = Want { attr: true, rights: true };
    let walked = match x.within(services.fs.walk(&x.call, &x.at(), want)).await {
        Ok(walked) => walked,
        Err(error) => return Err(x.problem(&error, Act::Read).await.into()),
    };
    let (attr, rights) = (walked.attr, walked.rights.unwrap_or(Rights::NONE));
    x.path.is_directory |= attr.kind == Kind::Directory;
    let mut text = String::new();
    frame::begin(&frame::title(&x.path), &mut text);
    frame::head(&x, &mut text);
    if attr.kind == Kind::File
        && let Some((_, name)) = x.path.path.split_last()
    {
        let link = encode_name(&name);
        let _ = writeln!(
            text,
            "<p><a href=\"./{link}\" download>Download</a> · <a href=\"./\">Its directory</a></p>"
        );
    }
    preview::write(&x, &attr, &mut text).await;
    facts(&x, &attr, &mut text).await;
    own_attributes(&x, &attr, &mut text).await;
    let why = x.within(x.talk.http.services.fs.why(&x.call, &x.at(), Rights::ALL, None)).await;
    write_rights(rights, why.ok().as_ref(), &mut text);
    if rights.contains(Rights::READ) && matches!(attr.kind, Kind::File | Kind::Directory) {
        links::write_form(&x, &mut text);
    }
    frame::end(&mut text);
    let fields = |answer: &mut Answer| _ = answer.fixed(&RULES).fixed(FIELDS);
    x.talk.reply(Status::OK, fields, Some((super::MEDIA, text.into_bytes()))).await
}

async fn facts(x: &Exchange<'_, '_>, attr: &Attr, out: &mut String) {
    out.push_str("<table class=\"facts\">\n");
    let mut fact = |name: &str, value: &str| _ = writeln!(out, "<tr><th>{name}<td>{}", escape(value));
    fact("Kind", kind_name(attr.kind));
    match attr.kind {
        Kind::File => {
            fact("Size", &format!("{} ({} bytes)", bytes(attr.size), attr.size));
            fact("Version", entity_tag(attr).trim_matches('"'));
        }
        Kind::Directory => fact("Entries", &attr.size.to_string()),
        _ => {}
    }
    fact("Changed", &format_time(attr.mtime));
    fact("Made", &format_time(attr.btime));
    fact("Owner", &name_of(x, attr.owner).await);
    fact("Mode", &format!("{:04o}", attr.mode));
    out.push_str("</table>\n");
}

async fn name_of(x: &Exchange<'_, '_>, id: CallerId) -> String {
    match x.within(x.talk.http.services.authority.name_of(id)).await {
        Ok(Some(name)) => name.to_string(),
        // A user of the machine, or of a domain that was not met.
        Ok(None) | Err(_) => id.to_string(),
    }
}

async fn own_attributes(x: &Exchange<'_, '_>, attr: &Attr, out: &mut String) {
    let services = &x.talk.http.services;
    let tags = dead::tags(&services.sys, &services.fs, &x.call, attr.id).await.unwrap_or_default();
    if tags.is_empty() {
        return;
    }
    out.push_str("<h2>Attributes</h2>\n<table class=\"facts\">\n");
    for (name, value) in tags {
        let (name, value) = (String::from_utf8_lossy(name.as_bytes()), String::from_utf8_lossy(&value));
        let _ = writeln!(out, "<tr><th>{}<td>{}", escape(&name), escape(&value));
    }
    out.push_str("</table>\n");
}

fn write_rights(rights: Rights, why: Option<&Why>, out: &mut String) {
    let _ = writeln!(out, "<h2>What you may do here</h2>\n<p>{}.</p>", frame::rights(rights));
    let Some(why) = why else { return };
    let _ = writeln!(
        out,
        "<p>As {}, known by {}. Each place on the way, what was asked there, and what settled it:</p>\n<dl>",
        escape(&why.caller.to_string()),
        escape(&why.evidence)
    );
    for step in &why.steps {
        let _ = writeln!(
            out,
            "<dt>{} <small>(container {})</small><dd>{} of {}",
            escape(&step.place),
            step.container,
            step.allowed,
            step.needed
        );
        for because in &step.because {
            let _ = writeln!(out, "<dd class=\"because\">{}", escape(because));
        }
    }
    out.push_str("</dl>\n");
}
