use farhaul::{Bytes, Connection, Listener, Options};
fn main() {
    let off = std::env::args().nth(1).is_none();
    let o = Options::new().offload(off);
    let l = Listener::bind("127.0.0.1:0", &o).unwrap();
    let a = Connection::connect(l.local_addr(), &o).unwrap();
    let b = l.accept().unwrap();
    let r = std::thread::spawn(move || { let mut n = 0u64; while let Some(c) = b.recv_chunk().unwrap() { n += c.len() as u64; } n });
    let d = Bytes::from(vec![1u8; 1 << 20]);
    let t = std::time::Instant::now();
    while t.elapsed().as_secs() < 4 { a.send_bytes(d.clone()).unwrap(); }
    a.close().unwrap();
    println!("{:.2} Gbit/s", r.join().unwrap() as f64 * 8e-9 / t.elapsed().as_secs_f64());
}
