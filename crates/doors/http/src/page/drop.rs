//! A drop-box, for whoever has its link: files go in, and nothing is seen.

use super::frame;
use super::rules::RULES;
use crate::answer::Answer;
use crate::exchange::{Exchange, Served};
use crate::link;
use crate::status::Status;

/// Answers with the page that takes files.
pub async fn serve(x: Exchange<'_, '_>) -> Served {
    let mut text = String::new();
    frame::begin("Drop files", &mut text);
    text.push_str(
        "<h1>Drop files</h1>\n<p>What you send goes to whoever gave you this address. You cannot see, change or take back what \
         is there.</p>\n<section id=\"tools\" data-may=\"drop\" data-guard=\"\" hidden>\
         <label>Add files <input type=\"file\" id=\"files\" multiple></label> <span>or drop them here</span>\
         <ul id=\"moves\"></ul></section>\n<p id=\"said\" role=\"alert\"></p>\n\
         <noscript><p>Without a script: <code>curl -T FILE ADDRESS</code>, with a name behind the address.</p></noscript>\n",
    );
    frame::end_with_script(&mut text);
    let fields = |answer: &mut Answer| _ = answer.fixed(&RULES).fixed(link::RULES);
    x.talk.reply(Status::OK, fields, Some((super::MEDIA, text.into_bytes()))).await
}
