//! `weft du`

use std::collections::HashSet;
use std::ffi::OsString;

use clap::Args;
use weft_client::tree::Walk;
use weft_core::Result;
use weft_core::attr::Kind;

use crate::context::Context;
use crate::output::out;
use crate::{paths, progress, show};

/// Options of `weft du`.
#[derive(Args)]
pub struct DuArgs {
    /// Directories [default: /]
    paths: Vec<OsString>,
    /// Count sizes, not storage
    #[arg(long)]
    apparent_size: bool,
}

pub fn run(context: &Context, args: &DuArgs) -> Result<()> {
    context.wait(async {
        let looked = progress::counting(context, "added up", false);
        let client = context.client().await?;
        let root = [OsString::from("/")];
        for path in if args.paths.is_empty() { &root[..] } else { &args.paths } {
            let at = paths::at(path)?;
            let shown = paths::show(&at.path);
            let mut walk = Walk::start(&client, &at, &shown).await.map_err(|e| e.op("add up"))?;
            // A file with several names is counted once.
            let (mut bytes, mut files, mut linked) = (0_u64, 0_u64, HashSet::new());
            while let Some(found) = walk.next().await? {
                let attr = found.attr;
                looked.add(1);
                if attr.kind == Kind::Directory || (attr.links > 1 && !linked.insert(attr.id)) {
                    continue;
                }
                files += 1;
                bytes += if args.apparent_size { attr.size } else { attr.used };
            }
            looked.beside(|| match context.json() {
                true => out!("{}", serde_json::json!({ "path": shown, "bytes": bytes, "files": files })),
                false => out!("{:>10}  {files} files  {shown}", show::size(bytes)),
            })?;
            walk.whole().map_err(|e| e.op("add up"))?;
        }
        Ok(())
    })
}
