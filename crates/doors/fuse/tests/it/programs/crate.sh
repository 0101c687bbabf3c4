# cargo builds and tests a crate, and knows what is fresh: a library with a build script, a program and a test.
# Whoever runs this has settings of their own; incremental builds link and lock files.
for name in $(env | sed -n 's/^\(CARGO_[A-Z0-9_]*\)=.*/\1/p'); do
  test "$name" = CARGO_HOME || unset "$name"
done
unset RUSTFLAGS
export CARGO_INCREMENTAL=1

mkdir -p small/src small/tests
cd small
cat >Cargo.toml <<'END'
[package]
name = "small"
version = "0.1.0"
edition = "2021"

[workspace]
END
cat >build.rs <<'END'
fn main() {
    let out = std::path::Path::new(&std::env::var("OUT_DIR").unwrap()).join("made.rs");
    std::fs::write(out, "pub const MADE: u32 = 40;").unwrap();
    println!("cargo:rerun-if-changed=build.rs");
}
END
cat >src/lib.rs <<'END'
include!(concat!(env!("OUT_DIR"), "/made.rs"));
pub fn answer() -> u32 { MADE + 2 }
END
echo 'fn main() { println!("{}", small::answer()); }' >src/main.rs
cat >tests/it.rs <<'END'
#[test]
fn it_is_42() { assert_eq!(small::answer(), 42); }
END

fails() { ! "$@"; }
cargo build -v --offline 2>"$OUT/first"
grep -q 'Compiling small' "$OUT/first"
cargo build -v --offline 2>"$OUT/second"
grep -q 'Fresh small' "$OUT/second"
fails grep -e Running -e Compiling "$OUT/second"
test "$(target/debug/small)" = 42
# A change is seen, by its time, and only what it touches is built.
sed -i 's/MADE + 2/2 + MADE/' src/lib.rs
cargo test -q --offline 2>"$OUT/tested"
test ! -s "$OUT/tested"
cargo build -v --offline 2>"$OUT/third"
grep -q 'Fresh small' "$OUT/third"
