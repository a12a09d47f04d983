use super::*;

const SETTINGS: Settings = Settings {
    capacity: Some(100e6),
    first_rate: 1e6,
    interval: Duration::from_millis(100),
    tolerance: 0.001,
};

/// Flows that send what they are told, or what else they like.
struct World {
    manager: Manager,
    now: Time,
    /// ID, bits sent so far, the grant, and the rate of those who do as they like.
    flows: Vec<(u64, f64, f64, Option<f64>)>,
    /// What gets through, bits/s; the rest is lost.
    link: f64,
    missed: f64,
}

impl World {
    fn new(settings: Settings, link: f64) -> Self {
        let manager = Manager::new(settings);
        World { manager, now: Time::from_secs(1), flows: Vec::new(), link, missed: 0.0 }
    }

    fn join(&mut self) {
        let id = self.manager.join(self.now, Duration::from_millis(20));
        self.flows.push((id, 0.0, 1e6, None));
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            self.now += Duration::from_millis(10);
            let sent: f64 = self.flows.iter().map(|f| f.3.unwrap_or(f.2)).sum();
            let fits = (self.link / sent).min(1.0);
            for (id, bits, grant, own) in &mut self.flows {
                let rate = own.unwrap_or(*grant);
                *bits += rate * fits * 0.01;
                self.missed += rate * (1.0 - fits) * 0.01;
                let arrivals = Arrivals {
                    bits: *bits,
                    packets: (*bits / 12e3) as u64,
                    missed: (self.missed / 12e3) as u64 / 2,
                    rtt: Duration::from_millis(20),
                    rtt_min: Duration::from_millis(20),
                };
                *grant = self.manager.report(self.now, *id, arrivals);
            }
        }
    }

    /// What each may send, in Mb/s, rounded.
    fn grants(&self) -> Vec<f64> {
        self.flows.iter().map(|f| (f.2 / 1e6).round()).collect()
    }
}

#[test]
fn a_newcomer_is_admitted_when_the_others_have_made_room() {
    let mut world = World::new(SETTINGS, 100e6);
    world.join();
    world.run(100);
    assert_eq!(world.grants(), [100.0]);
    world.join();
    world.run(10);
    assert_eq!(world.grants(), [50.0, 1.0], "room is made at once, and taken later");
    world.run(30);
    assert_eq!(world.grants(), [50.0, 50.0]);
    let first = world.flows.remove(0).0;
    world.manager.leave(world.now, first);
    world.run(10);
    assert_eq!(world.grants(), [100.0], "what is left is given out at once");
}

#[test]
fn a_share_that_is_not_used_is_given_up_and_had_back() {
    let mut world = World::new(SETTINGS, 100e6);
    (0..4).for_each(|_| world.join());
    world.run(300);
    assert_eq!(world.grants(), [25.0; 4]);
    world.flows[0].3 = Some(4e6);
    world.run(300);
    assert_eq!(world.grants(), [5.0, 32.0, 32.0, 32.0], "what it uses and a quarter more");
    world.flows[0].3 = None;
    world.run(500);
    assert_eq!(world.grants(), [25.0; 4]);
}

/// With one flow idle from the beginning, and one that becomes slow.
#[test]
fn the_capacity_is_found_beside_those_who_do_not_use_their_share() {
    let mut world = World::new(Settings { capacity: None, ..SETTINGS }, 100e6);
    (0..3).for_each(|_| world.join());
    world.flows[1].3 = Some(0.0);
    for (slow, rest) in [(None, 50e6), (Some(4e6), 96e6)] {
        world.flows[2].3 = slow;
        world.run(5_000);
        let before = world.flows[0].1;
        world.run(10_000);
        let rate = (world.flows[0].1 - before) / 10.0;
        assert!(rate > 0.93 * rest, "{slow:?}: {rate}");
    }
}

#[test]
fn the_capacity_is_found_and_kept() {
    for (link, flows) in [(10e6, 2), (1e9, 3), (200e6, 64)] {
        let mut world = World::new(Settings { capacity: None, ..SETTINGS }, link);
        (0..flows).for_each(|_| world.join());
        world.run(5_000);
        let (before, missed) = (world.flows.iter().map(|f| f.1).sum::<f64>(), world.missed);
        world.run(20_000);
        let arrived = world.flows.iter().map(|f| f.1).sum::<f64>() - before;
        let share = arrived / 20.0 / link;
        let lost = (world.missed - missed) / arrived;
        assert!((0.9..=1.0).contains(&share), "{link} {flows}: {share}");
        assert!(lost < 0.02, "{link} {flows}: {lost}");
    }
}

#[test]
fn a_sender_that_does_as_it_likes_is_found_out() {
    let mut world = World::new(SETTINGS, 200e6);
    (0..3).for_each(|_| world.join());
    world.run(300);
    world.flows[1].3 = Some(60e6);
    world.run(200);
    assert!(!world.manager.ignores_grant(1), "twice may be chance");
    world.run(300);
    assert!(world.manager.ignores_grant(1) && !world.manager.ignores_grant(0));
    assert_eq!(world.grants(), [20.0, 33.0, 20.0], "the others divide what it leaves");
    world.flows[1].3 = None;
    world.run(300);
    assert_eq!(world.grants(), [33.0, 33.0, 33.0]);
    assert!(!world.manager.ignores_grant(1));
}
