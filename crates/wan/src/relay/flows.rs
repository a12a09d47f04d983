//! Who talks through the relay: one flow per client, or the one between two fixed peers.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use farhaul_base::Time;

use crate::socket::Socket;

use super::Ends;

/// Names a flow; after the flow has gone it names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowKey {
    slot: usize,
    generation: u64,
}

/// A client and the socket that speaks to the target for it.
#[derive(Debug)]
pub(crate) struct Flow {
    /// Where answers go from the near socket; `None` if that is connected to the peer.
    pub client: Option<SocketAddr>,
    /// Connected to the target.
    pub far: Socket,
    /// What the far socket has reported as lost for lack of room.
    pub overflowed: u32,
    last_used: Time,
}

/// All flows.
#[derive(Debug)]
pub(crate) struct Flows {
    slots: Vec<Slot>,
    by_client: HashMap<SocketAddr, FlowKey>,
    /// How new clients are served; `None` between fixed peers.
    service: Option<Service>,
    /// Counts flows that came or went.
    changes: u64,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u64,
    flow: Option<Flow>,
}

#[derive(Debug)]
struct Service {
    target: SocketAddr,
    max_clients: usize,
    idle_timeout: Duration,
}

impl Flows {
    /// The near socket and the flows that these ends have from the start.
    pub(crate) fn bind(ends: &Ends) -> io::Result<(Socket, Flows)> {
        let none =
            |service| Flows { slots: Vec::new(), by_client: HashMap::new(), service, changes: 0 };
        match *ends {
            Ends::Clients { listen, target, max_clients, idle_timeout } => {
                let service = Some(Service { target, max_clients, idle_timeout });
                Ok((Socket::bind(listen)?, none(service)))
            }
            Ends::Between { a, b } => {
                let (near, far) = (Socket::bind(a.listen)?, Socket::bind(b.listen)?);
                near.connect(a.peer)?;
                far.connect(b.peer)?;
                let mut flows = none(None);
                flows.insert(None, far, Time::ZERO);
                Ok((near, flows))
            }
        }
    }

    /// The flow of a datagram from `from` at the near socket, made if it is new. `None` if there is
    /// no place for it.
    pub(crate) fn of_client(&mut self, from: SocketAddr, now: Time) -> Option<FlowKey> {
        let Some(service) = &self.service else { return Some(FlowKey::default()) };
        if let Some(key) = self.by_client.get(&from) {
            return Some(*key);
        }
        if self.by_client.len() >= service.max_clients {
            return None;
        }
        let far = upstream(service.target).ok()?;
        Some(self.insert(Some(from), far, now))
    }

    /// The flow of this name, if it still exists; this counts as use.
    pub(crate) fn touch(&mut self, key: FlowKey, now: Time) -> Option<&mut Flow> {
        let slot = self.slots.get_mut(key.slot).filter(|slot| slot.generation == key.generation)?;
        let flow = slot.flow.as_mut()?;
        flow.last_used = flow.last_used.max(now);
        Some(flow)
    }

    /// Forgets clients that have been idle for too long.
    pub(crate) fn expire(&mut self, now: Time) {
        let Some(service) = &self.service else { return };
        for slot in &mut self.slots {
            if let Some(flow) =
                slot.flow.take_if(|flow| now - flow.last_used > service.idle_timeout)
            {
                slot.generation += 1;
                self.changes += 1;
                flow.client.map(|client| self.by_client.remove(&client));
            }
        }
    }

    /// All flows, in a fixed order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (FlowKey, &Flow)> {
        self.slots.iter().enumerate().filter_map(|(slot, Slot { generation, flow })| {
            flow.as_ref().map(|flow| (FlowKey { slot, generation: *generation }, flow))
        })
    }

    /// How many flows there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.iter().filter(|slot| slot.flow.is_some()).count()
    }

    /// A number that differs whenever a flow has come or gone.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    fn insert(&mut self, client: Option<SocketAddr>, far: Socket, now: Time) -> FlowKey {
        self.changes += 1;
        let free = self.slots.iter().position(|slot| slot.flow.is_none());
        let slot = free.unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        let key = FlowKey { slot, generation: self.slots[slot].generation };
        self.slots[slot].flow = Some(Flow { client, far, overflowed: 0, last_used: now });
        if let Some(client) = client {
            self.by_client.insert(client, key);
        }
        key
    }
}

/// A socket on a free port that talks to `target`.
fn upstream(target: SocketAddr) -> io::Result<Socket> {
    let any = match target.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = Socket::bind((any, 0).into())?;
    socket.connect(target)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(max_clients: usize) -> Flows {
        let any = (Ipv4Addr::LOCALHOST, 0).into();
        let target = (Ipv4Addr::LOCALHOST, 9).into();
        let idle_timeout = Duration::from_secs(60);
        Flows::bind(&Ends::Clients { listen: any, target, max_clients, idle_timeout }).unwrap().1
    }

    fn client(port: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, port).into()
    }

    #[test]
    fn each_client_has_one_flow() {
        let mut flows = clients(2);
        let first = flows.of_client(client(1), Time::ZERO).unwrap();
        assert_eq!(flows.of_client(client(1), Time::ZERO), Some(first));
        let second = flows.of_client(client(2), Time::ZERO).unwrap();
        assert_ne!(first, second);
        assert_eq!(flows.of_client(client(3), Time::ZERO), None);
        assert_eq!(flows.touch(second, Time::ZERO).unwrap().client, Some(client(2)));
        assert_eq!(flows.len(), 2);
    }

    #[test]
    fn idle_clients_make_room() {
        let mut flows = clients(2);
        let idle = flows.of_client(client(1), Time::ZERO).unwrap();
        let busy = flows.of_client(client(2), Time::ZERO).unwrap();
        assert!(flows.touch(busy, Time::from_secs(50)).is_some());
        flows.expire(Time::from_secs(60));
        assert_eq!(flows.len(), 2);
        flows.expire(Time::from_secs(61));
        assert_eq!(flows.iter().map(|(key, _)| key).collect::<Vec<_>>(), [busy]);
        assert!(flows.touch(idle, Time::from_secs(61)).is_none());
        // The place is taken again, by another name.
        let new = flows.of_client(client(3), Time::from_secs(61)).unwrap();
        assert_eq!(new.slot, idle.slot);
        assert!(flows.touch(idle, Time::from_secs(61)).is_none());
        assert!(flows.touch(new, Time::from_secs(61)).is_some());
    }

    #[test]
    fn fixed_peers_do_not_expire() {
        let side = |port| super::super::PeerPort { listen: client(0), peer: client(port) };
        let (_, mut flows) = Flows::bind(&Ends::Between { a: side(1), b: side(2) }).unwrap();
        flows.expire(Time::from_secs(1_000_000));
        let key = flows.of_client(client(1), Time::ZERO).unwrap();
        assert!(flows.touch(key, Time::ZERO).unwrap().client.is_none());
    }
}
