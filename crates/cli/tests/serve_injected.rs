//! `farhaul serve` and a client with an attacker between them that injects packets.

mod common;

use common::copying::make_file;
use common::path::Path;
use common::server::Site;
use farhaul_wan::{Forged, InjectConfig, RelayConfig};

/// Data that is injected on the way to a server has the session tagged, whose forged packets are then counted.
#[test]
fn a_server_asks_for_tags_on_the_data_of_an_attacked_session() {
    let site =
        Site::new("[export.in]\npath = \"DIR/in\"\naccess = \"read-write\"\nclients = \"*\"\n");
    let _server = site.serve();
    let mut config = RelayConfig::new(([127, 0, 0, 1], 0).into(), site.address);
    config.inject = Some(InjectConfig { kinds: vec![Forged::Data], per_second: 20.0 });
    let relay = Path { seed: 5, ..Path::new("100M", 5) }.open(config);
    let big = site.path("here/big");
    make_file(&big, 8 << 20, 3);
    let url = format!("farhaul://{}/in/big", relay.local_addr());
    let from = big.to_str().expect("text");
    site.cp(&["--transport", "udt", "--rate", "20M", from, &url]).well();
    assert_eq!(site.read("in/big"), site.read("here/big"));
    // Half of them go to the other side.
    let forged = relay.stats().forged.of(Forged::Data);
    let counted = "farhaul_forged_packets_total{client=\"alice\",export=\"in\"}";
    site.wait_metric(counted, forged / 10);
    assert!(forged >= 30, "{forged}");
}
