//! Keeps one worker's part of the server (schemas, accounts, a Weir of its own) and the sessions that play a cell there.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use weir_lab::Error;
use weir_testkit::{Family, MysqlServer, Weir, WeirConfig, preflight};

use crate::IoDriver;
use crate::client::{Client, Heard, Step, Who};
use crate::comparison::{Moment, Scene};
use crate::marks::Marks;
use crate::names::Names;
use crate::session_view::{Looker, Looks, Masks, Seen, Value, answered, is_over, masks, shown};
use crate::state::State;
use crate::way::Script;

/// How long a statement waits for the only connection. Short, because where A holds it all others wait in vain.
const WAIT_MS: i64 = 250;
/// How long a connection may take to come back when its session is gone.
const BACK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the server may take to end a connection whose client has said good-bye.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a Weir may take until statements run.
const START_TIMEOUT: Duration = Duration::from_secs(10);
const HOSTGROUP: i64 = 1;

/// Who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The server itself.
    Direct,
    /// The Weir.
    Weir,
}

/// Who does what in which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Play {
    /// A does it and stays; all look in turn, A again and again. Then A goes, and the others look once more.
    There,
    /// A does it and goes; then the others look, in this order.
    Gone([Looker; 3]),
}

impl Play {
    /// The orders of which each has another session in front.
    pub(crate) const ALL: [Play; 4] = [
        Play::There,
        Play::Gone([Looker::B, Looker::C, Looker::D]),
        Play::Gone([Looker::C, Looker::D, Looker::B]),
        Play::Gone([Looker::D, Looker::B, Looker::C]),
    ];

    /// A is there, and one of the orders without it: there are so many variables that each order gets its turn with each
    /// way.
    pub(crate) fn some(number: usize) -> [Play; 2] {
        [Play::There, Play::ALL[1 + number % 3]]
    }
}

/// What a stage is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan<'a> {
    pub(crate) server: &'a MysqlServer,
    pub(crate) family: Family,
    pub(crate) version: &'a str,
    pub(crate) binary: &'a Path,
    pub(crate) dir: &'a Path,
    pub(crate) address: Ipv4Addr,
    pub(crate) io: IoDriver,
    pub(crate) reset_after_hidden_code: bool,
    pub(crate) control: &'a Who,
}

/// One worker's schemas, accounts, Weir and sessions.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    pub(crate) plan: Plan<'a>,
    names: Names,
    looks: &'a Looks,
    /// Makes and removes things, looks behind the scenes.
    control: Client,
    /// A's account, at the server: what it makes is A's.
    maker: Client,
    /// Has a row in a table that only READ UNCOMMITTED shows.
    holder: Client,
    marks: Marks,
    weir: Option<Weir>,
    starts: u32,
    /// What a session of a Weir that nobody has used sees.
    virgin: Seen,
    /// How that differs from the server.
    pub(crate) masks: Masks,
}

impl<'a> Stage<'a> {
    /// Starts its Weir and learns what a new one shows. Its schemas and accounts are there ([`crate::prepared`]).
    pub(crate) fn new(plan: Plan<'a>, names: Names, looks: &'a Looks) -> Result<Stage<'a>, Error> {
        let server = plan.server.addr();
        let mut control = Client::open(server, plan.control, &names.schema('s'))?;
        done(&mut control, "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")?;
        done(&mut control, "SET SESSION lock_wait_timeout = 2, innodb_lock_wait_timeout = 2")?;
        let who = who(&names, Looker::A);
        let mut maker = Client::open(server, &who, &names.schema('a'))?;
        done(&mut maker, "SET SESSION lock_wait_timeout = 2")?;
        let mut holder = Client::open(server, &who, &names.schema('s'))?;
        done(&mut holder, "SET SESSION wait_timeout = 86400")?;
        done(&mut holder, "BEGIN")?;
        done(&mut holder, "INSERT INTO uncommitted VALUES (1)")?;
        let marks = Marks::new(&names);
        let mut stage = Stage {
            plan,
            names,
            looks,
            control,
            maker,
            holder,
            marks,
            weir: None,
            starts: 0,
            virgin: Seen::new(),
            masks: Masks::new(),
        };
        stage.start_weir()?;
        stage.virgin = stage.virgin_look(Side::Weir)?;
        stage.masks = masks(&stage.virgin_look(Side::Direct)?, &stage.virgin);
        Ok(stage)
    }

    /// Makes a cell's routines; whether the server lets them be made.
    pub(crate) fn set_up(&mut self, script: &Script) -> Result<bool, Error> {
        for sql in &script.setup {
            let sql = self.names.fill(sql);
            let mut heard = self.maker.text(&sql);
            if locked(&heard) {
                self.expel()?;
                heard = self.maker.text(&sql);
            }
            match heard.last() {
                Some(Heard::Done) => {}
                Some(Heard::Error { .. }) => return Ok(false),
                other => return Err(Error::Answer { what: sql, answer: format!("{other:?}") }),
            }
        }
        Ok(true)
    }

    /// Plays a cell.
    pub(crate) fn play(
        &mut self,
        side: Side,
        play: Play,
        state: &State,
        steps: &[Step],
    ) -> Result<Vec<Scene>, Error> {
        self.clean(state)?;
        let mut scenes = Vec::new();
        let a = self.enter(side, Looker::A);
        let performed = a.and_then(|a| match play {
            Play::There => self.perform_there(side, a, state, steps, &mut scenes),
            Play::Gone(order) => self.perform_gone(side, a, order, state, steps, &mut scenes),
        });
        match performed {
            Ok(()) => {}
            // A session that can't be opened through Weir is something that was seen.
            Err(Error::Server(error)) if side == Side::Weir => {
                let seen = vec![("the login".to_owned(), Value::Plain(format!("closed: {error}")))];
                scenes.push(Scene { who: Looker::D, moment: Moment::Gone, turn: u8::MAX, seen });
            }
            Err(error) => return Err(error),
        }
        if self.marks.is_disordered() {
            self.sweep()?;
        }
        Ok(scenes)
    }

    fn perform_there(
        &mut self,
        side: Side,
        mut a: Client,
        state: &State,
        steps: &[Step],
        scenes: &mut Vec<Scene>,
    ) -> Result<(), Error> {
        let mut b = self.enter(side, Looker::B)?;
        let mut c = self.enter(side, Looker::C)?;
        scenes.push(self.act(&mut a, steps));
        self.look(&mut a, (Looker::A, Moment::There, 1), state, scenes)?;
        let mut waits = self.look(&mut b, (Looker::B, Moment::There, 2), state, scenes)?;
        self.look(&mut a, (Looker::A, Moment::There, 3), state, scenes)?;
        if !waits {
            waits = self.look(&mut c, (Looker::C, Moment::There, 4), state, scenes)?;
            self.look(&mut a, (Looker::A, Moment::There, 5), state, scenes)?;
        }
        self.leave(side, a)?;
        // Who has waited in vain has another past than at the server; the other plays show what it would see now.
        if waits {
            // The next play begins when the server has forgotten A.
            self.enter(side, Looker::B)?.quit();
        } else {
            self.look_until_back(&mut b, (Looker::B, 6), state, scenes)?;
            b.quit();
            self.look_until_back(&mut c, (Looker::C, 7), state, scenes)?;
            c.quit();
        }
        Ok(())
    }

    fn perform_gone(
        &mut self,
        side: Side,
        mut a: Client,
        order: [Looker; 3],
        state: &State,
        steps: &[Step],
        scenes: &mut Vec<Scene>,
    ) -> Result<(), Error> {
        let mut others: Vec<(Looker, Client)> = Vec::new();
        for looker in [Looker::B, Looker::C] {
            others.push((looker, self.enter(side, looker)?));
        }
        scenes.push(self.act(&mut a, steps));
        self.leave(side, a)?;
        for (looker, turn) in order.into_iter().zip(6..) {
            let mut client = match others.iter().position(|(other, _)| *other == looker) {
                Some(at) => others.swap_remove(at).1,
                None => self.open(side, looker)?,
            };
            self.look_until_back(&mut client, (looker, turn), state, scenes)?;
            client.quit();
        }
        Ok(())
    }

    fn act(&self, a: &mut Client, steps: &[Step]) -> Scene {
        let acts = steps.iter().map(|step| (label(step), answered(&a.step(&self.filled(step)))));
        Scene { who: Looker::A, moment: Moment::Acts, turn: 0, seen: acts.collect() }
    }

    fn leave(&mut self, side: Side, a: Client) -> Result<(), Error> {
        let id = a.id();
        a.quit();
        match side {
            Side::Direct => self.wait_gone(id),
            Side::Weir => Ok(()),
        }
    }

    /// One look; whether it had to wait in vain.
    fn look(
        &mut self,
        client: &mut Client,
        (who, moment, turn): (Looker, Moment, u8),
        state: &State,
        scenes: &mut Vec<Scene>,
    ) -> Result<bool, Error> {
        let mut seen = self.looks.take(client, state, &self.names);
        if !is_over(&seen) {
            let heard = client.text(&format!("INSERT INTO mark (who) VALUES ('{who:?}')"));
            seen.push(("an INSERT".to_owned(), shown(&heard)));
            let landed = self.marks.found(&mut self.control)?;
            seen.push(("its row".to_owned(), Value::Plain(landed)));
        }
        if state.do_looks_pin && who != Looker::A && !is_over(&seen) {
            seen.push(("a reset".to_owned(), shown(&client.step(&Step::Reset))));
        }
        let waits = seen.iter().any(|(_, value)| *value == Value::Waits);
        scenes.push(Scene { who, moment, turn, seen });
        Ok(waits)
    }

    /// A is gone: the connection comes back soon.
    fn look_until_back(
        &mut self,
        client: &mut Client,
        (who, turn): (Looker, u8),
        state: &State,
        scenes: &mut Vec<Scene>,
    ) -> Result<(), Error> {
        let begun = Instant::now();
        while self.look(client, (who, Moment::Gone, turn), state, scenes)? && begun.elapsed() < BACK_TIMEOUT {
            scenes.pop();
        }
        Ok(())
    }

    fn open(&self, side: Side, looker: Looker) -> Result<Client, Error> {
        let schema = self.names.schema(looker.letter());
        Ok(Client::open(self.address(side), &who(&self.names, looker), &schema)?)
    }

    /// A session that has been served already.
    fn enter(&self, side: Side, looker: Looker) -> Result<Client, Error> {
        let mut client = self.open(side, looker)?;
        let begun = Instant::now();
        loop {
            let heard = client.text("SELECT 1");
            if matches!(heard.as_slice(), [Heard::Rows(_)]) {
                return Ok(client);
            }
            if begun.elapsed() > BACK_TIMEOUT {
                return Err(Error::Answer { what: "SELECT 1".to_owned(), answer: format!("{heard:?}") });
            }
        }
    }

    fn address(&self, side: Side) -> SocketAddrV4 {
        match (side, &self.weir) {
            (Side::Weir, Some(weir)) => weir.addr(),
            _ => self.plan.server.addr(),
        }
    }

    fn filled(&self, step: &Step) -> Step {
        match step {
            Step::Text(sql) => Step::Text(self.names.fill(sql)),
            Step::Prepared(sql, params) => Step::Prepared(self.names.fill(sql), params.clone()),
            Step::PrepareOnly(sql) => Step::PrepareOnly(self.names.fill(sql)),
            Step::InitDb(schema) => Step::InitDb(self.names.fill(schema)),
            Step::Reset => Step::Reset,
        }
    }

    /// Takes away what an earlier cell has committed.
    fn clean(&mut self, state: &State) -> Result<(), Error> {
        if state.statements.iter().chain(&state.looks).any(|sql| sql.contains("<s>.moved")) {
            let sql = self.names.fill("DELETE FROM <s>.moved");
            if locked(&self.control.text(&sql)) {
                self.expel()?;
                done(&mut self.control, &sql)?;
            }
        }
        Ok(())
    }

    /// Empties the tables that INSERTs land in.
    fn sweep(&mut self) -> Result<(), Error> {
        for sql in self.marks.sweep() {
            if locked(&self.control.text(&sql)) {
                self.expel()?;
                done(&mut self.control, &sql)?;
            }
        }
        Ok(())
    }

    /// Has the server end every connection of the stage's Weir.
    pub(crate) fn expel(&mut self) -> Result<(), Error> {
        let (a, c) = (self.names.user('a'), self.names.user('c'));
        let sql = format!("SELECT id, db FROM information_schema.processlist WHERE user IN ('{a}', '{c}')");
        let keep = [self.maker.id().to_string(), self.holder.id().to_string()];
        for row in crate::variables::rows(&mut self.control, &sql)? {
            if let Some(id) = row.first().filter(|id| !keep.contains(id)) {
                // It may have gone by itself meanwhile.
                self.control.text(&format!("KILL {id}"));
            }
        }
        Ok(())
    }

    /// After something was wrong: a clean connection, and a new Weir if that does not do.
    pub(crate) fn recover(&mut self) -> Result<(), Error> {
        self.expel()?;
        self.sweep()?;
        let looks_new = self.virgin_look(Side::Weir).is_ok_and(|seen| seen == self.virgin);
        if !looks_new {
            self.expel()?;
            self.start_weir()?;
        }
        Ok(())
    }

    fn virgin_look(&mut self, side: Side) -> Result<Seen, Error> {
        let mut client = self.enter(side, Looker::B)?;
        let seen = self.looks.take(&mut client, &State::default(), &self.names);
        client.quit();
        Ok(seen)
    }

    fn wait_gone(&mut self, id: u32) -> Result<(), Error> {
        let sql = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {id}");
        let begun = Instant::now();
        while crate::variables::rows(&mut self.control, &sql)?.concat() != ["0"] {
            if begun.elapsed() > END_TIMEOUT {
                return Err(Error::Answer { what: sql, answer: "the connection does not end".to_owned() });
            }
        }
        Ok(())
    }

    fn start_weir(&mut self) -> Result<(), Error> {
        self.weir = None;
        self.starts += 1;
        let listen = preflight::free_address(self.plan.address)?;
        let mut config = WeirConfig::new(listen);
        config.server(self.plan.server.addr(), HOSTGROUP, &[("max_connections", 1.into())]);
        for letter in ['a', 'c'] {
            let user = self.names.user(letter);
            config.push(
                "mysql_users",
                &[
                    ("username", user.clone().into()),
                    ("password", user.into()),
                    ("default_hostgroup", HOSTGROUP.into()),
                ],
            );
        }
        config.variable("server_version", self.plan.version);
        config.variable("threads", 1);
        // Every connection stays open when it is idle, also the only one.
        config.variable("free_connections_pct", 100);
        config.variable("connect_timeout_server_max", WAIT_MS);
        config.variable("io_driver", self.plan.io.name());
        config.variable("reset_after_hidden_code", self.plan.reset_after_hidden_code);
        let name = format!("{}-{}", self.names.user('w'), self.starts);
        let weir = Weir::start(self.plan.binary, &config, self.plan.dir, &name)?;
        self.weir = Some(weir);
        let begun = Instant::now();
        while let Err(error) = self.enter(Side::Weir, Looker::B).map(Client::quit) {
            if begun.elapsed() > START_TIMEOUT {
                return Err(error);
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// The account of a session.
pub(crate) fn who(names: &Names, looker: Looker) -> Who {
    let letter = if looker == Looker::C { 'c' } else { 'a' };
    let user = names.user(letter);
    Who { password: user.clone(), user }
}

fn label(step: &Step) -> String {
    match step {
        Step::Text(sql) => sql.clone(),
        Step::Prepared(sql, _) => format!("{sql} (prepared)"),
        Step::PrepareOnly(sql) => format!("{sql} (prepared, not executed)"),
        Step::InitDb(schema) => format!("COM_INIT_DB {schema}"),
        Step::Reset => "COM_RESET_CONNECTION".to_owned(),
    }
}

/// Somebody has left a lock behind.
fn locked(heard: &[Heard]) -> bool {
    matches!(heard.last(), Some(Heard::Error { code: 1205, .. }))
}

/// A statement that must not fail.
pub(crate) fn done(client: &mut Client, sql: &str) -> Result<(), Error> {
    match client.text(sql).last() {
        Some(Heard::Done | Heard::Rows(_)) => Ok(()),
        other => Err(Error::Answer { what: sql.to_owned(), answer: format!("{other:?}") }),
    }
}
