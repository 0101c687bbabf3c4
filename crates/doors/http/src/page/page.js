"use strict";
// What changes a directory. Each change is the request that any other client would send.
(() => {
  const tools = document.getElementById("tools");
  const may = new Set(tools.dataset.may.split(" "));
  const said = document.getElementById("said");
  const say = (text) => { said.textContent = text; };

  // Sends a request; fails with what the node says was wrong.
  async function ask(method, href, fields = {}) {
    const headers = { ...fields };
    if (tools.dataset.guard) headers["X-Weft-Guard"] = tools.dataset.guard;
    const answer = await fetch(href, { method, headers });
    if (!answer.ok) throw await refusal(answer.status, await answer.text());
    return answer;
  }

  function refusal(status, body) {
    let why = `the node answered ${status}`;
    try { why = JSON.parse(body).detail || why; } catch { /* It is no problem of the node's own. */ }
    return Object.assign(new Error(why), { status });
  }

  // Does something that a button asks for, tells what went wrong, and shows the directory anew, if one may see it.
  async function act(work) {
    say("");
    try {
      if (await work() !== false && !may.has("drop")) location.reload();
    } catch (error) {
      say(error.message);
    }
  }

  const named = (name) => "./" + encodeURIComponent(name);

  function make() {
    const name = prompt("Name of the new folder");
    return name ? ask("MKCOL", named(name)) : false;
  }

  function rename(href, name) {
    const to = prompt("New name", name);
    if (!to || to === name) return false;
    const destination = new URL(named(to), location.href).href;
    return ask("MOVE", href, { Destination: destination, Overwrite: "F" }).catch((error) => {
      throw error.status === 412 ? new Error(`there is already something named ${to}`) : error;
    });
  }

  function remove(href, name) {
    const is_directory = href.endsWith("/");
    const what = is_directory ? `the folder ${name} and all that is in it` : name;
    return confirm(`Remove ${what}? This cannot be undone.`) ? ask("DELETE", href) : false;
  }

  // Sends bytes, and tells how many of them are sent.
  function send(method, href, fields, bytes, moved) {
    return new Promise((done, failed) => {
      const request = new XMLHttpRequest();
      request.open(method, href);
      for (const [name, value] of Object.entries(fields)) request.setRequestHeader(name, value);
      if (tools.dataset.guard) request.setRequestHeader("X-Weft-Guard", tools.dataset.guard);
      request.upload.onprogress = (event) => moved(event.loaded);
      request.onerror = () => failed(new Error("the connection broke off"));
      request.onload = () => {
        if (request.status >= 200 && request.status < 300) done(request);
        else failed(refusal(request.status, request.responseText));
      };
      request.send(bytes);
    });
  }

  // Sends one file, and shows how far it is.
  async function put(file, href, replaces) {
    const line = document.createElement("li");
    const bar = Object.assign(document.createElement("progress"), { max: Math.max(file.size, 1), value: 0 });
    line.append(bar, file.name);
    document.getElementById("moves").append(line);
    const moved = (bytes) => { bar.value = bytes; };
    // Nobody else's file of that name is replaced, also if it came a moment ago.
    const fields = replaces ? {} : { "If-None-Match": "*" };
    const seconds = file.lastModified ? String(Math.floor(file.lastModified / 1000)) : "";
    // Whoever only drops files has no account, and such uploads are for those who have one.
    if (file.size > LARGE && !may.has("drop")) await putLarge(file, href, fields, seconds, moved);
    else await send("PUT", href, seconds ? { ...fields, "X-OC-Mtime": seconds } : fields, file, moved);
    bar.replaceWith("sent:");
  }

  const LARGE = 64 * 1024 * 1024, TRIES = 10;
  const coded = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));

  // Sends a large file so that a line that breaks is gone on with where it was (tus 1.0.0).
  async function putLarge(file, href, fields, seconds, moved) {
    const tus = { "Tus-Resumable": "1.0.0" };
    const said = `filename ${coded(file.name)}` + (seconds ? `,mtime ${coded(seconds)}` : "");
    const begin = { ...tus, ...fields, "Upload-Length": String(file.size), "Upload-Metadata": said };
    const begun = await ask("POST", href.slice(0, href.lastIndexOf("/") + 1), begin);
    const address = begun.headers.get("Location");
    const offset = async () => Number((await ask("HEAD", address, tus)).headers.get("Upload-Offset"));
    for (let at = 0, tries = 0; at < file.size;) {
      const more = { ...tus, "Content-Type": "application/offset+octet-stream", "Upload-Offset": String(at) };
      try {
        await send("PATCH", address, more, file.slice(at), (bytes) => moved(at + bytes));
        return;
      } catch (error) {
        tries = await rested(error, tries);
      }
      const there = await offset().catch((error) => rested(error, tries).then(() => at));
      if (there > at) tries = 0;
      at = there;
    }
  }

  // Rests after a failure that may pass, the longer the more there were. Returns how many there were.
  async function rested(error, tries) {
    const passes = !error.status || error.status === 408 || error.status === 409 || error.status >= 500;
    if (!passes || error.status === 507 || tries >= TRIES) throw error;
    await new Promise((done) => setTimeout(done, 500 * (tries + 1)));
    return tries + 1;
  }

  async function is_there(href) {
    try {
      await ask("HEAD", href);
      return true;
    } catch (error) {
      if (error.status === 404) return false;
      throw error;
    }
  }

  async function upload(file, href) {
    if (may.has("drop")) return put(file, href, false);
    const replaces = await is_there(href);
    if (replaces && !confirm(`Replace ${file.name}?`)) return;
    await put(file, href, replaces);
  }

  // Sends a folder with all that is in it.
  async function sendFolder(entry, base) {
    const href = base + encodeURIComponent(entry.name) + "/";
    if (!await is_there(href)) await ask("MKCOL", href.slice(0, -1));
    const reader = entry.createReader();
    for (;;) {
      const page = await new Promise((done, failed) => reader.readEntries(done, failed));
      if (page.length === 0) return;
      for (const inner of page) {
        if (inner.isDirectory) {
          await sendFolder(inner, href);
        } else {
          const file = await new Promise((done, failed) => inner.file(done, failed));
          await upload(file, href + encodeURIComponent(file.name));
        }
      }
    }
  }

  async function sendAll(files, folders) {
    for (const folder of folders) await sendFolder(folder, "./");
    for (const file of files) await upload(file, named(file.name));
  }

  function button(text, work) {
    const made = Object.assign(document.createElement("button"), { textContent: text, type: "button" });
    made.addEventListener("click", () => act(work));
    return made;
  }

  if (may.has("insert")) document.getElementById("make").addEventListener("click", () => act(make));
  if (may.has("insert") || may.has("drop")) {
    tools.hidden = false;
    const files = document.getElementById("files");
    files.addEventListener("change", () => act(() => sendAll([...files.files], [])));
    document.addEventListener("dragover", (event) => { event.preventDefault(); tools.classList.add("over"); });
    document.addEventListener("dragleave", () => tools.classList.remove("over"));
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      tools.classList.remove("over");
      // All is taken before anything is waited for: then it is gone.
      const files = [], folders = [];
      for (const item of event.dataTransfer.items) {
        const entry = item.kind === "file" && item.webkitGetAsEntry && item.webkitGetAsEntry();
        if (entry && entry.isDirectory) folders.push(entry);
        else if (item.kind === "file") files.push(item.getAsFile());
      }
      act(() => sendAll(files, folders));
    });
  }
  for (const row of document.querySelectorAll("tbody tr")) {
    const link = row.querySelector("td a"), last = row.lastElementChild;
    const href = link.getAttribute("href"), name = link.textContent;
    if (href === "../") continue;
    if (may.has("rename")) last.append(button("rename", () => rename(href.replace(/\/$/, ""), name)));
    if (may.has("remove")) last.append(button("remove", () => remove(href, name)));
  }
})();
