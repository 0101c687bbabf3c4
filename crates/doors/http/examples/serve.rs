//! The door over the in-memory model, to try programs on: `cargo run -p weft-doors-http --example
//! serve`. The user is alice; `/public` is anyone's to read; `/public/1k`, `170k` and `64m` are there.

#![expect(clippy::print_stdout, reason = "it says where it serves")]

#[allow(dead_code)]
#[path = "../tests/it/house.rs"]
mod house;
#[allow(dead_code)]
#[path = "../tests/it/secured.rs"]
mod secured;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let house = house::House::open().await;
    for (name, bytes) in [("1k", 1 << 10), ("170k", 170 << 10), ("64m", 64 << 20)] {
        house.put(&format!("public/{name}"), vec![b'x'; bytes]).await;
    }
    println!("{}  alice:{}", house.url("/public/"), house::PASSWORD);
    std::future::pending::<()>().await;
}
