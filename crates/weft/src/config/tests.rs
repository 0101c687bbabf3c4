use super::*;

/// Layers of one file with this text, and of flags.
fn layers(text: &str, pieces: &[(&str, &str)], flags: &Flags) -> Layers {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("weft.toml");
    std::fs::write(&file, text).expect("written");
    std::fs::create_dir(dir.path().join("weft.toml.d")).expect("made");
    for (name, text) in pieces {
        std::fs::write(dir.path().join("weft.toml.d").join(name), text).expect("written");
    }
    Layers::gather(&Place { file, named: true }, flags).expect("it is read")
}

fn line(mistake: &Mistake) -> usize {
    match &mistake.origin {
        Origin::File(_, line) => *line,
        _ => 0,
    }
}

#[test]
fn the_later_wins_and_says_where_it_was_said() {
    let text = "log = \"warn\"\nhosts = [\"a.example\"]\n\n[http]\nlisten = \"127.0.0.1:1\"\n";
    let pieces = [
        ("20-second.toml", "http.listen = \"127.0.0.1:3\"\n"),
        ("10-first.toml", "http.listen = \"127.0.0.1:2\"\nhosts = [\"b.example\", \"c.example\"]\n"),
        (".hidden.toml", "log = \"error\"\n"),
        ("30-not-one", "log = \"error\"\n"),
    ];
    let of_files = layers(text, &pieces, &Vec::new());
    let config = Config::of(&of_files).expect("no mistakes");
    let settings = config.settings();
    assert_eq!(settings.http, "127.0.0.1:3".parse().expect("an address"));
    assert_eq!(settings.https.expect("beside").address, "127.0.0.1:4".parse().expect("an address"));
    assert_eq!(
        (settings.hosts.join(" "), config.logging().filter.as_str()),
        ("b.example c.example".to_owned(), "warn")
    );
    let origin = of_files.effective(Setting::Http).origin.to_string();
    assert!(origin.ends_with("weft.toml.d/20-second.toml:1"), "{origin}");
    let overruled: Vec<String> = of_files.overruled(Setting::Http).map(|set| set.values.join(" ")).collect();
    assert_eq!(overruled, ["127.0.0.1:2", "127.0.0.1:1"]);
    let flags = vec![(Setting::Http, vec!["[::1]:9".to_owned()])];
    let with_flags = layers(text, &pieces, &flags);
    assert_eq!(with_flags.effective(Setting::Http).origin, Origin::Flag("--http"));
    assert_eq!(Config::of(&with_flags).expect("good").settings().http.port(), 9);
    assert_eq!(layers("", &[], &Vec::new()).effective(Setting::Http).origin, Origin::Default);
}

#[test]
fn every_mistake_is_told_with_its_line() {
    for (text, wanted) in [
        ("log = 1\n", vec![(1, "takes a text")]),
        ("\nhtpp.listen = \"127.0.0.1:1\"\n", vec![(2, "did you mean `http.listen`?")]),
        ("[http]\nlisten = \"nowhere\"\nport = 1\n", vec![(3, "no setting `http.port`"), (2, "no address")]),
        ("hosts = \"a\"\n", vec![(1, "takes a list")]),
        ("hosts = [\"a.example/x\"]\n", vec![(1, "no host name")]),
        ("[https]\ncertificate = \"/c\"\n", vec![(2, "needs `https.key`")]),
        ("http.public = \"files.example.org\"\n", vec![(1, "no address of a whole host")]),
        ("http.public = \"https://files.example.org/weft\"\n", vec![(1, "no address of a whole host")]),
        ("http.public = \"davs://files.example.org\"\n", vec![(1, "no address of a whole host")]),
        ("[https]\nhttp2 = \"no\"\n", vec![(2, "neither `on` nor `off`")]),
        ("log = \"info\"\nlog = \"warn\"\n", vec![(2, "duplicate key")]),
        ("log = \"info\n", vec![(1, "")]),
        ("log = \"a=b=c\"\n", vec![(1, "cannot be read")]),
        ("[https]\nlisten = \"on\"\n[else]\na = 1\n", vec![(3, "no setting `else`"), (2, "neither")]),
    ] {
        let mistakes = Config::of(&layers(text, &[], &Vec::new())).expect_err(text);
        assert_eq!(mistakes.len(), wanted.len(), "{text}: {mistakes:?}");
        for (mistake, (at, why)) in mistakes.iter().zip(&wanted) {
            assert!(line(mistake) == *at && mistake.why.contains(why), "{text}: {mistake}");
        }
    }
}

#[test]
fn the_public_address_is_one_of_the_hosts_and_what_issuers_call_the_node() {
    let text = "hosts = [\"a.example\"]\nhttp.public = \"HTTPS://Files.example.org:8443/\"\n";
    let wrong = Config::of(&layers(text, &[], &Vec::new())).expect_err("a scheme in capitals");
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    let settings = |text: &str| Config::of(&layers(text, &[], &Vec::new())).expect("good").settings();
    let both = settings(&text.replace("HTTPS", "https"));
    assert_eq!(both.hosts, ["a.example", "files.example.org"]);
    assert_eq!(both.public.expect("it was said").origin(), "https://files.example.org:8443");
    let once = settings("hosts = [\"a.example\"]\nhttp.public = \"https://a.example\"\n");
    assert_eq!(once.hosts, ["a.example"]);
}

#[test]
fn what_a_node_that_runs_cannot_take_up_is_named() {
    let config = |text: &str| Config::of(&layers(text, &[], &Vec::new())).expect("good");
    let before = config("log = \"warn\"\n");
    assert_eq!(before.needs_restart(&config("log = \"debug\"\n")), []);
    let new = config("hosts = [\"x\"]\nhttp.listen = \"127.0.0.1:1\"\n");
    assert_eq!(before.needs_restart(&new), [Setting::Http, Setting::Hosts]);
}

#[test]
fn any_text_is_read_or_told_of_and_lines_are_of_the_text() {
    let make = |dice: &mut weft_conformance::file_system::site::Dice| {
        let parts = [
            "[http]\n",
            "listen = \"127.0.0.1:0\"\n",
            "hosts = [\"a\", ",
            "\"b\"]\n",
            "log.x = 1\n",
            "# c\n",
            "=",
            "\"\"\"",
        ];
        (0..dice.roll(8)).map(|_| *dice.pick(&parts)).collect::<String>().into_bytes()
    };
    weft_conformance::fuzz::fuzz("configuration", make, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let (values, faults) = file::read(&text);
        let lines = 1 + text.matches('\n').count();
        assert!(values.iter().all(|value| (1..=lines).contains(&value.line)));
        assert!(faults.iter().all(|(line, _)| (1..=lines).contains(line)), "{faults:?}");
    });
}
