//! `weft status`

use weft_core::Result;
use weft_core::service::Node;

use crate::context::Context;
use crate::output::out;
use crate::show;

pub fn run(context: &Context) -> Result<()> {
    context.wait(async {
        let client = context.client().await?;
        let status = client.remote().status(client.caller()).await?;
        if context.json() {
            out!(
                "{}",
                serde_json::json!({
                    "version": status.version,
                    "domain": status.domain.to_string(),
                    "started": status.started.seconds(),
                    "pid": status.pid,
                    "data": status.data,
                    "doors": status.doors.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
                    "bytes_total": status.bytes_total,
                    "bytes_free": status.bytes_free,
                    "files": status.files,
                    "sessions": status.sessions,
                    "uploads": status.uploads,
                    "upload_bytes": status.upload_bytes,
                })
            )?;
            return Ok(());
        }
        out!("weft     {}", status.version)?;
        out!("domain   {}", status.domain)?;
        out!("started  {} UTC, pid {}", show::time(status.started), status.pid)?;
        if !status.data.is_empty() {
            out!("data     {}", status.data)?;
        }
        out!("space    {} free of {}", show::size(status.bytes_free), show::size(status.bytes_total))?;
        out!("files    {}", status.files)?;
        out!("sessions {}", status.sessions)?;
        if status.uploads > 0 {
            out!("uploads  {} unfinished, holding {}", status.uploads, show::size(status.upload_bytes))?;
        }
        for (door, address) in &status.doors {
            out!("door     {door} at {address}")?;
        }
        Ok(())
    })
}
