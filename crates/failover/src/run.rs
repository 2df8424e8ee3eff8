//! Leads a run: probes, load and watched logs, from a quiet begin over what happens to the end.

use std::path::Path;

use weir_lab::log_watch::{Log, Watch};
use weir_lab::probe::{Probes, Target};
use weir_lab::record::{Mark, Recording, Source};
use weir_lab::{Error, Moment};
use weir_testkit::Account;

use crate::load::{Amount, Load};
use crate::stage::Stage;

/// A run that is going on.
#[derive(Debug)]
pub(crate) struct Run {
    begun: Moment,
    table: String,
    threads: u32,
    probes: Probes,
    load: Option<Load>,
    watch: Watch,
    marks: Vec<Mark>,
}

impl Run {
    /// Starts probes whose rows go to `table`, and the load.
    pub(crate) fn start(
        target: Target,
        table: String,
        logs: Vec<Log>,
        dir: &Path,
        stage: &Stage<'_>,
        threads: u32,
    ) -> Result<Run, Error> {
        let amount = Amount { threads, ..stage.scale.load };
        let load = amount.start(target, dir, &format!("sysbench-{table}"))?;
        let watch = Watch::start(logs);
        let probes = Probes::start(target, &Account::APP.into(), &table);
        Ok(Run { begun: Moment::now(), table, threads, probes, load, watch, marks: Vec::new() })
    }

    /// Whether every probe has had an answer.
    pub(crate) fn probes_answered(&self) -> bool {
        self.probes.all_answered_since(self.begun)
    }

    /// Notes what is done to the servers; the time is that of the call.
    pub(crate) fn mark(&mut self, text: impl Into<String>) -> Moment {
        let at = Moment::now();
        self.marks.push(Mark { at, text: text.into(), source: Source::Scenario });
        at
    }

    /// sysbench's threads.
    pub(crate) fn threads(&self) -> u32 {
        self.threads
    }

    /// The table with the rows.
    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    /// Waits until every probe was answered to something that it sent later than `moment`; false if that does not
    /// happen in time.
    pub(crate) fn wait_answers(
        &self,
        stage: &Stage<'_>,
        moment: Moment,
        timeout_s: u64,
    ) -> Result<bool, Error> {
        let answered = || Ok(self.probes.all_answered_since(moment));
        match stage.stop.wait("answers", timeout_s, answered) {
            Ok(()) => Ok(true),
            Err(Error::Timeout { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Ends everything and gives what was seen.
    pub(crate) fn finish(self) -> Result<Recording, Error> {
        let ended = Moment::now();
        // The load first: killed clients have no errors, and probes that wait for a server need not wait longer.
        let load = self.load.map(Load::finish).transpose()?.unwrap_or_default();
        let seen = self.probes.finish();
        let mut marks = self.marks;
        marks.extend(self.watch.finish());
        marks.sort_by_key(|mark| mark.at);
        let mut failures = seen.failures;
        failures.extend(load.failures);
        failures.sort_by_key(|failure| failure.at);
        let recording = Recording {
            begun: self.begun,
            ended,
            samples: seen.samples,
            failures,
            unknown: seen.unknown,
            marks,
            load_tps: load.tps,
        };
        Ok(recording)
    }
}
