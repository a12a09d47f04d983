//! Ways through a network of links.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BinaryHeap;

/// Where a link leads, for [`routes_to`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The node where packets enter.
    pub from: usize,
    /// The node where they arrive.
    pub to: usize,
    /// How long that takes.
    pub delay: Duration,
}

/// For each of `nodes` nodes the link to take towards each of `destinations`, in their order; none where there is no
/// way. Nodes and links are numbered from zero.
///
/// Ways have the least propagation delay, then the fewest links, then the lowest numbers of links, so that
/// they are the same on every machine.
///
/// # Panics
/// If a link or a destination names a node that there is not.
pub fn routes_to(nodes: usize, legs: &[Leg], destinations: &[usize]) -> Vec<Vec<Option<usize>>> {
    let mut into = vec![Vec::new(); nodes];
    for (number, leg) in legs.iter().enumerate() {
        into[leg.to].push(number);
    }
    let mut routes = vec![vec![None; destinations.len()]; nodes];
    for (index, &to) in destinations.iter().enumerate() {
        for (node, link) in towards(to, legs, &into).into_iter().enumerate() {
            routes[node][index] = link;
        }
    }
    routes
}

/// Dijkstra's algorithm from the destination backwards; `into` has the links that lead to each node, in their order.
fn towards(to: usize, legs: &[Leg], into: &[Vec<usize>]) -> Vec<Option<usize>> {
    let mut next = vec![None; into.len()];
    let mut best: Vec<Option<(Duration, u32)>> = vec![None; into.len()];
    best[to] = Some((Duration::ZERO, 0));
    let mut open = BinaryHeap::from([Reverse((Duration::ZERO, 0, to))]);
    while let Some(Reverse((delay, links, node))) = open.pop() {
        if best[node] != Some((delay, links)) {
            continue;
        }
        for &number in &into[node] {
            let leg = legs[number];
            let cost = (delay.saturating_add(leg.delay), links + 1);
            if best[leg.from].is_none_or(|known| cost < known) {
                best[leg.from] = Some(cost);
                next[leg.from] = Some(number);
                open.push(Reverse((cost.0, cost.1, leg.from)));
            }
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg(from: usize, to: usize, ms: u64) -> Leg {
        Leg { from, to, delay: Duration::from_millis(ms) }
    }

    #[test]
    fn ways_are_the_shortest() {
        // From 0 to 3 over 1 or, slower, over 2; and a second link beside the first.
        let legs = [leg(0, 1, 3), leg(0, 1, 3), leg(0, 2, 9), leg(1, 3, 1), leg(2, 3, 1)];
        let routes = routes_to(4, &legs, &[0, 3]);
        assert_eq!((routes[0][1], routes[1][1], routes[2][1]), (Some(0), Some(3), Some(4)));
        // No way back.
        assert_eq!((routes[3][0], routes[1][0]), (None, None));
    }

    #[test]
    fn of_equal_delays_the_fewest_links_count() {
        let legs = [leg(0, 1, 1), leg(1, 2, 1), leg(0, 2, 2)];
        assert_eq!(routes_to(3, &legs, &[2])[0][0], Some(2));
    }

    #[test]
    fn delays_beyond_all_time_are_no_error() {
        let long = |from, to| Leg { from, to, delay: Duration::MAX };
        assert_eq!(routes_to(3, &[long(0, 1), long(1, 2)], &[2])[0][0], Some(0));
    }
}
