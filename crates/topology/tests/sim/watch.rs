//! Weirs as processes, and their probes: the same in every world.

use weir_topology::{ProbeError, ServerState, Wish};

use crate::cluster::{Context, Path};
use crate::queue::{Event, MS, Time};
use crate::weir::Weir;

/// A world with servers that Weirs look at.
pub(crate) trait Watch {
    /// What every event needs.
    fn parts(&mut self) -> (&mut Context, &mut Vec<Weir>);

    fn context(&mut self) -> &mut Context {
        self.parts().0
    }

    /// How many servers there are.
    fn count(&self) -> usize;

    /// The way from a Weir to a server.
    fn path(&self, weir: usize, node: usize) -> Path;

    /// What a probe that has come this far gets: nothing while the server hangs.
    fn look(&mut self, node: usize) -> Option<Result<ServerState, ProbeError>>;

    /// Has a Weir decide.
    fn decide(&mut self, weir: usize);

    /// The event, unless the process that handles it is gone or stopped.
    fn is_heard(&mut self, event: Event) -> Option<Event> {
        let (_, weirs) = self.parts();
        match event.handled_by() {
            Some((weir, life)) if weirs[weir].life != life || !weirs[weir].runs => None,
            Some((weir, _)) if weirs[weir].stopped || weirs[weir].is_stalled && !event.is_clients() => {
                weirs[weir].waiting.push(event);
                None
            }
            _ => Some(event),
        }
    }

    /// SIGKILL of a Weir, which is started again.
    fn kill_weir(&mut self, weir: usize) {
        let (context, weirs) = self.parts();
        if weirs[weir].runs {
            weirs[weir].kill(context);
            context.within(50 * MS..4000 * MS, Event::Restart { weir });
        }
    }

    /// SIGSTOP of a Weir, and later SIGCONT.
    fn stop_weir(&mut self, weir: usize, pause: Time) {
        let (context, weirs) = self.parts();
        let stopped = &mut weirs[weir];
        if stopped.is_awake() {
            stopped.stopped = true;
            let life = stopped.life;
            context.disturb(|| format!("weir {weir} is stopped for {} ms", pause / MS));
            context.after(pause, Event::Continue { weir, life });
        }
    }

    /// What decides in a Weir gets no time; what serves its clients does.
    fn stall_weir(&mut self, weir: usize, pause: Time) {
        let (context, weirs) = self.parts();
        let stalled = &mut weirs[weir];
        if stalled.is_awake() {
            stalled.is_stalled = true;
            let life = stalled.life;
            context.disturb(|| format!("weir {weir} decides nothing for {} ms", pause / MS));
            context.after(pause, Event::Continue { weir, life });
        }
    }

    /// All Weirs are told that a server is to leave, or may come back.
    fn drain(&mut self, node: usize, leaves: bool) {
        let (context, weirs) = self.parts();
        for weir in weirs {
            weir.wish(node, if leaves { Wish::OfflineSoft } else { Wish::Online });
            weir.wished_at = context.now;
        }
    }

    fn fail(&mut self, what: impl FnOnce() -> String) {
        self.parts().0.fail(what);
    }

    fn go_on(&mut self, weir: usize, life: u32) {
        let (context, weirs) = self.parts();
        let goes_on = &mut weirs[weir];
        if goes_on.life != life || goes_on.runs && goes_on.is_awake() {
            return;
        }
        context.disturb(|| format!("weir {weir} goes on"));
        (goes_on.stopped, goes_on.is_stalled, goes_on.awake_since) = (false, false, context.now);
        for event in std::mem::take(&mut goes_on.waiting) {
            context.after(0, event);
        }
    }

    fn ask(&mut self, weir: usize, node: usize, turn: u64) {
        let path = self.path(weir, node);
        let (context, weirs) = self.parts();
        let asking = &mut weirs[weir];
        let probe = &mut asking.probes[node];
        if probe.turn != turn || probe.is_asking {
            return;
        }
        probe.id += 1;
        (probe.is_asking, probe.asked_at) = (true, context.now);
        let (id, life, timeout) = (probe.id, asking.life, asking.settings.timeout);
        let deadline = context.now + timeout;
        let travel = travel(context, path.delay);
        if path.there_broken || travel > timeout {
            note_late(context, path);
            return self.time_out(weir, node, id, deadline);
        }
        context.after(travel, Event::Asked { weir, life, node, probe: id, deadline });
    }

    fn time_out(&mut self, weir: usize, node: usize, probe: u64, deadline: Time) {
        let (context, weirs) = self.parts();
        let (life, timeout) = (weirs[weir].life, weirs[weir].settings.timeout);
        let result = Box::new(Err(ProbeError::Timeout(timeout / MS)));
        context.queue.add(deadline, Event::Answered { weir, life, node, probe, result });
    }

    fn asked(&mut self, weir: usize, life: u32, node: usize, probe: u64, deadline: Time) {
        let path = self.path(weir, node);
        let (context, weirs) = self.parts();
        if weirs[weir].life != life {
            return;
        }
        let travel = travel(context, path.delay);
        let now = context.now;
        match self.look(node) {
            None if now + 50 * MS < deadline => {
                let (context, _) = self.parts();
                context.after(50 * MS, Event::Asked { weir, life, node, probe, deadline });
            }
            Some(result) if !path.back_broken && now + travel < deadline => {
                let (context, _) = self.parts();
                let result = Box::new(result);
                context.after(travel, Event::Answered { weir, life, node, probe, result });
            }
            _ => {
                note_late(self.parts().0, path);
                self.time_out(weir, node, probe, deadline);
            }
        }
    }

    fn answered(&mut self, weir: usize, node: usize, id: u64, result: Result<ServerState, ProbeError>) {
        let (context, weirs) = self.parts();
        let asking = &mut weirs[weir];
        let probe = &mut asking.probes[node];
        if probe.id != id || !probe.is_asking {
            return;
        }
        probe.is_asking = false;
        probe.turn += 1;
        let (turn, again) = (probe.turn, std::mem::take(&mut probe.again));
        let (life, answered) = (asking.life, result.is_ok());
        let pause = if again { 0 } else { asking.pause(&mut context.random, answered) };
        context.after(pause, Event::Probe { weir, life, node, turn });
        asking.observe(context.now, node, result);
        self.decide(weir);
    }
}

fn travel(context: &mut Context, delay: Time) -> Time {
    let usual = context.random.within(100..1500);
    if delay > 0 && context.random.percent(50) { usual + context.random.within(0..delay) } else { usual }
}

/// A world is not quiet in which answers come too late now and then.
fn note_late(context: &mut Context, path: Path) {
    if path.delay > 0 {
        context.disturbed_at = context.now;
    }
}
