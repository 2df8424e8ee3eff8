//! The servers, the tables that they share, and what happens.

use std::collections::VecDeque;

use weir_seeds::SplitMix;
use weir_topology::{DrainRow, EpochRead, EpochRow, InstanceRow, Millis};

use crate::weir::{Entry, Step, Switchover, Weir};

/// A step of time, in milliseconds.
const TICK: u64 = 5;
/// How often a Weir decides although nothing was seen.
const DECISION: u64 = 50;
/// How long something happens, and how long it is quiet then.
const BUSY: u64 = 40_000;
const QUIET: u64 = 25_000;
/// How long a switchover waits for sessions.
const GRACE: u64 = 5_000;
/// How long a change that one Weir's user makes may take until all know.
const SPREAD: u64 = 15_000;
/// When a Weir that has just written its row has been heard of.
const HEARD_OF: u64 = 1_000;
/// How long a Weir that has just started waits until it knows of others.
const FIRST_READ_WAIT: u64 = 3_000;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    NobodyIsWaitedFor,
    NotAnnounced,
    ClearWhileWriting,
    NotHeldForOthers,
    DrainsOfWritersUntold,
    AskedForEver,
    /// What an earlier order has announced counts for the next one.
    AnnouncedBefore,
}

/// What takes its time on the way to a server, or back.
enum Message {
    Write { weir: usize, life: u32, at: usize, entry: Entry },
    Read { weir: usize, life: u32, at: usize, read: EpochRead, registers: bool },
    ReadOnly { weir: usize, life: u32, at: usize, read_only: bool, source: Option<usize> },
}

pub(crate) struct World {
    random: SplitMix,
    breach: Option<Breach>,
    now: u64,
    /// How often a session begins a transaction, and how long it takes at most.
    busy_pct: u64,
    transaction: u64,
    read_only: Vec<bool>,
    /// Who moves the role has this lock, as with the procedures' own.
    lock: Option<(usize, u32)>,
    row: Option<EpochRow>,
    instances: Vec<InstanceRow>,
    drains: Vec<DrainRow>,
    /// Each with its life; none: it does not run.
    weirs: Vec<Option<Weir>>,
    lives: Vec<u32>,
    on_the_way: Vec<(u64, Message)>,
    /// A writer that somebody's user keeps out, who, and since when.
    kept_out: Option<(usize, usize, u64)>,
    /// Since when nobody keeps anything out.
    free_since: u64,
    pub(crate) moved: u64,
    pub(crate) taken_out: u64,
    story: VecDeque<String>,
}

impl World {
    pub(crate) fn of_seed(seed: u64, breach: Option<Breach>) -> Self {
        let mut random = SplitMix::new(seed ^ 0x00A6_7EE3);
        let servers = random.pick(&[2, 3, 3]);
        let count = random.pick(&[1, 2, 2, 3]);
        Self {
            breach,
            now: 1_000,
            busy_pct: random.pick(&[1, 5]),
            transaction: random.pick(&[50, 500, 3_000]),
            read_only: (0..servers).map(|number| number > 0).collect(),
            lock: None,
            row: None,
            instances: Vec::new(),
            drains: Vec::new(),
            weirs: (0..count).map(|index| Some(Weir::new(&format!("weir{index}"), servers))).collect(),
            lives: vec![0; count],
            on_the_way: Vec::new(),
            kept_out: None,
            free_since: 0,
            moved: 0,
            taken_out: 0,
            story: VecDeque::new(),
            random,
        }
    }

    pub(crate) fn story(&self) -> String {
        self.story.iter().cloned().collect::<Vec<_>>().join("\n")
    }

    fn note(&mut self, what: String) {
        if self.story.len() > 200 {
            self.story.pop_front();
        }
        self.story.push_back(format!("{:>7} {what}", self.now));
    }

    /// Plays the world to its end.
    pub(crate) fn play(&mut self) -> Result<(), String> {
        while self.now < BUSY + QUIET {
            self.now += TICK;
            self.deliver();
            if self.now < BUSY {
                self.disturb();
            } else {
                self.calm_down();
            }
            for index in 0..self.weirs.len() {
                self.act(index)?;
            }
            self.check_kept_out()?;
        }
        self.check_end()
    }

    fn is_same(&self, weir: usize, life: u32) -> bool {
        self.weirs[weir].is_some() && self.lives[weir] == life
    }

    fn send(&mut self, message: Message) {
        // Needs a read that is as late as the end of an announcement is early.
        let fast = if self.breach == Some(Breach::AnnouncedBefore) { 50 } else { 95 };
        let is_fast = self.random.percent(fast);
        let delay = self.random.within(if is_fast { 0..20 } else { 0..300 });
        self.on_the_way.push((self.now + delay, message));
    }

    fn deliver(&mut self) {
        let now = self.now;
        let due: Vec<Message> = {
            let (due, later) =
                std::mem::take(&mut self.on_the_way).into_iter().partition(|(at, _)| *at <= now);
            self.on_the_way = later;
            let mut due: Vec<(u64, Message)> = due;
            due.sort_by_key(|(at, _)| *at);
            due.into_iter().map(|(_, message)| message).collect()
        };
        for message in due {
            match message {
                Message::Write { weir, life, at, entry } => self.write(weir, life, at, entry),
                Message::Read { weir, life, at, read, registers } if self.is_same(weir, life) => {
                    if let Some(weir) = &mut self.weirs[weir] {
                        weir.is_writing = false;
                        if registers {
                            weir.registered_at.get_or_insert(now);
                        }
                        weir.has_read(at, read);
                    }
                }
                Message::ReadOnly { weir, life, at, read_only, source } if self.is_same(weir, life) => {
                    if let Some(weir) = &mut self.weirs[weir] {
                        weir.sees(at, read_only, source, now);
                    }
                }
                Message::Read { .. } | Message::ReadOnly { .. } => {}
            }
        }
    }

    /// A transaction comes to a server; what a dead Weir has sent is done all the same.
    fn write(&mut self, weir: usize, life: u32, at: usize, entry: Entry) {
        let asked_at = Millis(entry.own.beat);
        if self.read_only[at] {
            if let Some(weir) = self.weirs[weir].as_mut().filter(|_| self.lives[weir] == life) {
                weir.is_writing = false;
                weir.forget_said();
            }
            return;
        }
        let instance = entry.own.instance.clone();
        let changed =
            entry.proposal.as_ref().and_then(|proposal| proposal.applied(self.row.as_ref(), &instance));
        if let Some(changed) = &changed {
            self.note(format!("{instance}: {:?}", entry.proposal));
            self.row = Some(changed.clone());
        }
        self.instances.retain(|row| row.instance != instance);
        self.instances.push(entry.own);
        self.drains.retain(|row| row.instance != instance);
        self.drains.extend(entry.drains);
        self.answer(weir, life, at, asked_at, true);
    }

    fn answer(&mut self, weir: usize, life: u32, at: usize, asked_at: Millis, registers: bool) {
        let read = EpochRead {
            asked_at,
            row: self.row.clone(),
            instances: self.instances.clone(),
            drains: Some(self.drains.clone()),
            malformed: None,
        };
        self.send(Message::Read { weir, life, at, read, registers });
    }

    /// Something that people do.
    fn disturb(&mut self) {
        if !self.random.percent(1) {
            return;
        }
        let (index, servers) = (self.random.below(self.weirs.len()), self.read_only.len());
        match self.random.within(0..100) {
            0..50 => {
                let to = self.random.below(servers);
                self.order(index, to);
            }
            50..60 => self.take_out(index),
            60..75 => self.let_in(),
            75..85 => self.stop(index),
            _ => self.start(index),
        }
    }

    fn calm_down(&mut self) {
        if self.now % 1_000 < TICK {
            self.let_in();
            (0..self.weirs.len()).for_each(|index| self.start(index));
        }
    }

    fn order(&mut self, index: usize, to: usize) {
        let now = self.now;
        let Some(weir) = self.weirs[index].as_mut() else { return };
        let Some(from) = weir.writer() else { return };
        if weir.switchover.is_some() || from == to || self.kept_out.is_some() {
            return;
        }
        weir.switchover = Some(Switchover { from, to, step: Step::Begins, since: now, ordered_at: 0 });
        self.note(format!("weir{index} is to move the role from {from} to {to}"));
    }

    fn take_out(&mut self, index: usize) {
        let is_moving = self.weirs.iter().flatten().any(|weir| weir.switchover.is_some());
        let Some(weir) = self.weirs[index].as_mut() else { return };
        let is_known =
            weir.published_leadership().is_some_and(|known| known.row.is_some() && known.drains.is_some());
        let Some(writer) = weir.writer().filter(|_| self.kept_out.is_none() && !is_moving && is_known) else {
            return;
        };
        weir.keeps_out = Some(writer);
        self.kept_out = Some((writer, index, self.now));
        self.taken_out += 1;
        self.note(format!("weir{index}'s user takes {writer} out, which writes"));
    }

    fn let_in(&mut self) {
        let Some((_, index, _)) = self.kept_out.take() else { return };
        self.free_since = self.now;
        if let Some(weir) = self.weirs[index].as_mut() {
            weir.keeps_out = None;
        }
        self.note(format!("weir{index}'s user lets it in"));
    }

    /// In order it takes its rows away; killed it leaves them.
    fn stop(&mut self, index: usize) {
        let is_keeping = self.kept_out.is_some_and(|(_, keeper, _)| keeper == index);
        let Some(weir) = self.weirs[index].take_if(|_| !is_keeping) else { return };
        self.lives[index] += 1;
        let in_order = self.random.percent(40);
        if in_order && weir.transactions.is_empty() {
            self.instances.retain(|row| row.instance != weir.instance);
            self.drains.retain(|row| row.instance != weir.instance);
        }
        self.note(format!("weir{index} ends, in order: {in_order}"));
        // Whose procedure dies with it leaves the lock, and the next one undoes what it has begun.
        if self.lock.is_some_and(|(holder, _)| holder == index) {
            self.lock = None;
            if let Some(switchover) = weir.switchover
                && self.read_only.iter().all(|read_only| *read_only)
            {
                self.read_only[switchover.from] = false;
            }
        }
    }

    fn start(&mut self, index: usize) {
        if self.weirs[index].is_some() {
            return;
        }
        self.weirs[index] = Some(Weir::new(&format!("weir{index}"), self.read_only.len()));
        self.note(format!("weir{index} starts"));
    }

    /// One Weir's turn.
    fn act(&mut self, index: usize) -> Result<(), String> {
        let Some(mut weir) = self.weirs[index].take() else { return Ok(()) };
        let (now, life) = (self.now, self.lives[index]);
        for at in 0..self.read_only.len() {
            if self.random.percent(8) {
                let read_only = self.read_only[at];
                let source = read_only.then(|| self.read_only.iter().position(|only| !only)).flatten();
                self.send(Message::ReadOnly { weir: index, life, at, read_only, source });
            }
        }
        let holds = weir.foreign().is_some() && self.breach != Some(Breach::NotHeldForOthers);
        let is_held = holds || weir.switchover.as_ref().is_some_and(|own| own.step != Step::Begins);
        weir.transactions.retain(|(_, until)| *until > now);
        if let Some(writer) = weir.writer().filter(|_| !is_held)
            && self.random.percent(self.busy_pct)
            && !self.read_only[writer]
        {
            let until = now + self.random.within(1..self.transaction);
            weir.transactions.push((writer, until));
        }
        let is_clear = weir.transactions.is_empty() || self.breach == Some(Breach::ClearWhileWriting);
        if weir.has_seen || now.is_multiple_of(DECISION) {
            weir.decide(is_clear, now);
        }
        let told = self.breach != Some(Breach::DrainsOfWritersUntold);
        if let Some(at) = weir.tables_at(told).filter(|_| !weir.is_writing) {
            if let Some(entry) = weir.entry(now) {
                weir.is_writing = true;
                self.send(Message::Write { weir: index, life, at, entry });
            } else if weir.is_to_look(now) {
                self.answer(index, life, at, Millis(now), false);
            }
        }
        if let Some((from, to, _)) = weir.reorder.take_if(|(_, _, at)| now >= *at)
            && weir.switchover.is_none()
            && weir.writer() == Some(from)
            && self.kept_out.is_none()
        {
            weir.switchover = Some(Switchover { from, to, step: Step::Begins, since: now, ordered_at: 0 });
            self.note(format!("weir{index} is to move the role once more from {from} to {to}"));
        }
        let moved = self.go_on(index, &mut weir);
        self.weirs[index] = Some(weir);
        moved
    }

    /// The next step of a switchover.
    fn go_on(&mut self, index: usize, weir: &mut Weir) -> Result<(), String> {
        let Some(mut own) = weir.switchover.take() else { return Ok(()) };
        let (now, breach) = (self.now, self.breach);
        let is_known = weir.published_leadership().is_some_and(|known| known.read_at.is_some());
        let awaited = weir.published_leadership().map(|known| known.awaited.clone()).unwrap_or_default();
        match own.step {
            Step::Begins => {
                let is_refused = weir.foreign().is_some()
                    || weir.writer() != Some(own.from)
                    || weir.published_leadership().is_some_and(|known| !known.silent.is_empty())
                    || now > own.since + FIRST_READ_WAIT;
                if is_refused {
                    return Ok(());
                }
                if is_known {
                    (own.step, own.since) = (Step::Waits, now);
                    let row = weir.published_leadership().and_then(|known| known.row.as_ref());
                    own.ordered_at = row.map_or(0, |row| row.version);
                    weir.has_seen = true;
                }
            }
            // One decision has been made since.
            Step::Waits if now > own.since => {
                // Its user has thought better of it, and orders the next one while the end of this one is on its way.
                let often = if breach == Some(Breach::AnnouncedBefore) { 30 } else { 8 };
                let is_broken_off =
                    now < BUSY && self.random.percent(if awaited.is_empty() { often } else { 1 });
                if weir.foreign().is_some() || now > own.since + GRACE || is_broken_off {
                    self.note(format!("weir{index} gives up: {awaited:?}"));
                    if is_broken_off {
                        weir.reorder = Some((own.from, own.to, now + self.random.within(5..60)));
                    }
                    return Ok(());
                }
                // Who was there when it was announced is known.
                let is_announced = weir.published_leadership().is_some_and(|known| known.is_announced)
                    || breach == Some(Breach::AnnouncedBefore) && weir.announces()
                    || breach == Some(Breach::NotAnnounced);
                let is_free = is_announced && awaited.is_empty() || breach == Some(Breach::NobodyIsWaitedFor);
                if is_free && weir.transactions.is_empty() && self.lock.is_none() {
                    // With the lock it looks again.
                    if self.read_only[own.from] {
                        return Ok(());
                    }
                    self.lock = Some((index, self.lives[index]));
                    self.check_nobody_writes(index, own.from)?;
                    self.read_only[own.from] = true;
                    (own.step, own.since) = (Step::Moves, now);
                }
            }
            Step::Moves if self.random.percent(10) => {
                self.read_only[own.to] = false;
                (own.step, own.since) = (Step::Follows, now);
                self.lock = None;
                self.moved += 1;
                self.note(format!("weir{index} has moved the role to {}", own.to));
            }
            Step::Follows => {
                let follows = weir.writer() == Some(own.to) || now > own.since + 10_000;
                if follows && breach != Some(Breach::AskedForEver) {
                    return Ok(());
                }
            }
            Step::Waits | Step::Moves => {}
        }
        weir.switchover = Some(own);
        Ok(())
    }

    /// Rule 1. A Weir that has just started is heard of as soon as its row has been read.
    fn check_nobody_writes(&self, mover: usize, from: usize) -> Result<(), String> {
        for (index, weir) in self.weirs.iter().enumerate() {
            let Some(weir) = weir.as_ref().filter(|_| index != mover) else { continue };
            let is_heard_of = weir.registered_at.is_some_and(|at| self.now > at + HEARD_OF);
            if is_heard_of && weir.transactions.iter().any(|(at, _)| *at == from) {
                return Err(format!(
                    "{}: weir{mover} makes {from} read_only, and weir{index} has a transaction there",
                    self.now
                ));
            }
        }
        Ok(())
    }

    /// Rule 2, once it could have spread: also a Weir that has just started must have had its time.
    fn check_kept_out(&self) -> Result<(), String> {
        let now = self.now;
        let is_quiet = now >= BUSY + SPREAD;
        for (index, weir) in self.weirs.iter().enumerate() {
            let Some(weir) = weir else { continue };
            if let Some((writer, keeper, since)) = self.kept_out
                && now >= since + SPREAD
                && weir.registered_at.is_some()
                && weir.leadership().is_some_and(|known| known.read_at.is_some_and(|at| now < at.0 + 1_500))
                && weir.writer() == Some(writer)
            {
                return Err(format!(
                    "{now}: weir{index} writes on {writer}, which weir{keeper}'s user has taken out"
                ));
            }
            if is_quiet
                && self.kept_out.is_none()
                && now >= self.free_since + SPREAD
                && weir.writer().is_none()
                && weir.switchover.is_none()
            {
                return Err(format!("{now}: weir{index} has no writer"));
            }
        }
        Ok(())
    }

    /// Rule 3.
    fn check_end(&self) -> Result<(), String> {
        let writer = self.read_only.iter().position(|read_only| !read_only);
        if let Some(switching) = self.row.as_ref().and_then(|row| row.switching.as_ref()) {
            return Err(format!("a switchover is announced for ever: {switching:?}"));
        }
        for (index, weir) in self.weirs.iter().enumerate() {
            let Some(weir) = weir else { continue };
            if weir.foreign().is_some() || weir.switchover.is_some() || weir.writer() != writer {
                return Err(format!(
                    "at the end weir{index} has {:?}, writer {:?} of {writer:?}",
                    weir.switchover,
                    weir.writer()
                ));
            }
        }
        Ok(())
    }
}
