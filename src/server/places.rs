//! Who has a connection, and who must go when there are too many.
//!
//! A flood must not lock out those who work here. So nobody is turned away as long as somebody else has a place for nothing.
//! Whoever has not shown yet that they may come in (or has not even finished the handshake) is a stranger. Strangers have a share
//! of the places: beyond it they take each other's. Within it somebody goes who was let in and now only keeps the line. Whoever
//! waits for an answer stays. The address that takes most pays first, and of one address what was longest without use.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use super::shares::network;

#[derive(Debug, Clone, Copy)]
pub struct PlaceLimits {
    pub all_max: usize,
    pub per_address_max: usize,
    /// The share of strangers: of one address, and of all together when no place is left.
    pub strangers_max: usize,
}

pub struct Places {
    limits: PlaceLimits,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    held: HashMap<Number, Held>,
    crowds: HashMap<IpAddr, Crowd>,
    strangers: usize,
    next: Number,
}

/// Of a place, and of the moment since when it has been as it is.
type Number = u64;

struct Held {
    home: IpAddr,
    standing: Standing,
    since: Number,
    let_go: Box<dyn FnOnce() + Send>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It has not shown yet that it may come in.
    Stranger,
    /// It has, and nothing of it is under way.
    Idle,
    /// It waits for an answer.
    Busy,
}

/// All places of one address.
#[derive(Default)]
struct Crowd {
    count: usize,
    /// By since when.
    strangers: BTreeMap<Number, Number>,
    idle: BTreeMap<Number, Number>,
}

/// Given back when it is dropped.
pub struct Place {
    places: Arc<Places>,
    number: Number,
}

/// Whoever it is waits for an answer, until this is dropped.
pub struct Busy {
    place: Arc<Place>,
}

impl Places {
    pub fn new(limits: PlaceLimits) -> Places {
        Places {
            limits,
            table: Mutex::default(),
        }
    }

    /// `let_go` is called when somebody else needs it more. `None`: everybody here waits for an answer.
    pub fn take(
        self: &Arc<Places>,
        peer: IpAddr,
        let_go: impl FnOnce() + Send + 'static,
    ) -> Option<Arc<Place>> {
        let home = network(peer);
        let mut table = self.table();
        let crowd = table.crowds.get(&home);
        let (count, strangers) = crowd.map_or((0, 0), |crowd| (crowd.count, crowd.strangers.len()));
        let PlaceLimits {
            all_max,
            per_address_max,
            strangers_max,
        } = self.limits;
        if strangers >= strangers_max {
            table.let_go_of(home, Standing::Stranger);
        } else if count >= per_address_max {
            let went =
                table.let_go_of(home, Standing::Idle) || table.let_go_of(home, Standing::Stranger);
            went.then_some(())?;
        }
        if table.held.len() >= all_max {
            let went = (table.strangers >= strangers_max
                && table.let_anybody_go(Standing::Stranger))
                || table.let_anybody_go(Standing::Idle)
                || table.let_anybody_go(Standing::Stranger);
            went.then_some(())?;
        }
        let number = table.number();
        let held = Held {
            home,
            standing: Standing::Stranger,
            since: number,
            let_go: Box::new(let_go),
        };
        table.put(number, held);
        Some(Arc::new(Place {
            places: self.clone(),
            number,
        }))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no panic while it is held")
    }
}

impl Table {
    fn number(&mut self) -> Number {
        self.next += 1;
        self.next
    }

    fn put(&mut self, number: Number, held: Held) {
        let crowd = self.crowds.entry(held.home).or_default();
        crowd.count += 1;
        self.strangers += usize::from(held.standing == Standing::Stranger);
        if let Some(line) = crowd.line(held.standing) {
            line.insert(held.since, number);
        }
        self.held.insert(number, held);
    }

    /// `None`: it was let go before.
    fn remove(&mut self, number: Number) -> Option<Held> {
        let held = self.held.remove(&number)?;
        let crowd = self.crowds.get_mut(&held.home)?;
        crowd.count -= 1;
        self.strangers -= usize::from(held.standing == Standing::Stranger);
        if let Some(line) = crowd.line(held.standing) {
            line.remove(&held.since);
        }
        if crowd.count == 0 {
            self.crowds.remove(&held.home);
        }
        Some(held)
    }

    fn stand(&mut self, number: Number, standing: Standing) {
        let since = self.number();
        if let Some(held) = self.remove(number) {
            let held = Held {
                standing,
                since,
                ..held
            };
            self.put(number, held);
        }
    }

    /// The one of an address that has stood like this for longest. `false`: there is none.
    fn let_go_of(&mut self, home: IpAddr, standing: Standing) -> bool {
        let crowd = self.crowds.get_mut(&home);
        let line = crowd.and_then(|crowd| crowd.line(standing));
        let Some((_, &number)) = line.and_then(|line| line.first_key_value()) else {
            return false;
        };
        if let Some(held) = self.remove(number) {
            (held.let_go)();
        }
        true
    }

    /// Of the address that has most of them.
    fn let_anybody_go(&mut self, standing: Standing) -> bool {
        let lengths = (self.crowds.iter_mut())
            .map(|(home, crowd)| (crowd.line(standing).map_or(0, |line| line.len()), *home));
        let home = lengths.max().map(|(_, home)| home);
        home.is_some_and(|home| self.let_go_of(home, standing))
    }
}

impl Crowd {
    fn line(&mut self, standing: Standing) -> Option<&mut BTreeMap<Number, Number>> {
        match standing {
            Standing::Stranger => Some(&mut self.strangers),
            Standing::Idle => Some(&mut self.idle),
            Standing::Busy => None,
        }
    }
}

impl Place {
    /// It has shown that it may come in, and waits for an answer.
    pub fn busy(self: &Arc<Place>) -> Busy {
        self.places.table().stand(self.number, Standing::Busy);
        Busy {
            place: self.clone(),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.table().remove(self.number);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let Place { places, number } = &*self.place;
        places.table().stand(*number, Standing::Idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const BOB: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    struct House {
        places: Arc<Places>,
        gone: Arc<Mutex<Vec<&'static str>>>,
    }

    impl House {
        fn new(all_max: usize, per_address_max: usize, strangers_max: usize) -> House {
            let limits = PlaceLimits {
                all_max,
                per_address_max,
                strangers_max,
            };
            House {
                places: Arc::new(Places::new(limits)),
                gone: Arc::default(),
            }
        }

        fn take(&self, peer: IpAddr, name: &'static str) -> Option<Arc<Place>> {
            let gone = self.gone.clone();
            let let_go = move || gone.lock().unwrap().push(name);
            self.places.take(peer, let_go)
        }

        fn gone(&self) -> Vec<&'static str> {
            std::mem::take(&mut self.gone.lock().unwrap())
        }
    }

    #[test]
    fn strangers_take_each_others_places_and_who_waits_stays() {
        let house = House::new(4, 4, 2);
        let busy = house.take(ANN, "busy").unwrap();
        let _answer = busy.busy();
        let idle = house.take(ANN, "idle").unwrap();
        drop(idle.busy());
        let _one = house.take(ANN, "one").unwrap();
        let two = house.take(ANN, "two").unwrap();
        let three = house.take(ANN, "three").unwrap();
        assert_eq!(house.gone(), ["one"]);
        // Within their share it is who keeps the line for nothing.
        let (_two, _three) = (two.busy(), three.busy());
        let four = house.take(ANN, "four").unwrap();
        assert_eq!(house.gone(), ["idle"]);
        let four = four.busy();
        assert!(house.take(ANN, "too many").is_none());
        assert!(house.take(BOB, "too many").is_none());
        assert!(house.gone().is_empty());
        drop(four);
        assert!(house.take(BOB, "there is a place again").is_some());
        assert_eq!(house.gone(), ["four"]);
    }

    #[test]
    fn the_address_that_takes_most_pays_first() {
        let house = House::new(4, 4, 4);
        let _bob = house.take(BOB, "bob").unwrap();
        let _ann: Vec<_> = ["a", "b", "c"].map(|name| house.take(ANN, name)).into();
        let _more = house.take(BOB, "more").unwrap();
        assert_eq!(house.gone(), ["a"]);
        assert_eq!(house.places.table().strangers, 4);
    }

    #[test]
    fn strangers_of_one_address_take_each_others_places() {
        let house = House::new(9, 9, 2);
        let kept: Vec<_> = ["a", "b", "c", "d"]
            .map(|name| house.take(ANN, name))
            .into();
        assert_eq!(house.gone(), ["a", "b"]);
        assert_eq!(house.places.table().held.len(), 2);
        drop(kept);
        assert!(house.places.table().held.is_empty() && house.places.table().crowds.is_empty());
    }

    #[test]
    fn a_net_of_addresses_is_one() {
        let house = House::new(9, 9, 1);
        let _one = house.take("2001:db8::1".parse().unwrap(), "one");
        let _two = house.take("2001:db8::2".parse().unwrap(), "two");
        let _other = house.take("2001:db8:0:1::2".parse().unwrap(), "other");
        assert_eq!(house.gone(), ["one"]);
    }
}
