//! Tells whoever has ordered an operation how it goes.

use std::sync::mpsc::{Receiver, Sender, channel};

/// The way to whoever ordered something. They may have gone: nobody waits for that.
#[derive(Debug)]
pub struct Progress(Sender<ProgressEvent>);

/// An event of an operation. Without an end Weir is ending.
#[derive(Debug)]
pub enum ProgressEvent {
    /// What is done now.
    Step(String),
    /// What was done, or why it was not: a sentence either way.
    End(Result<String, String>),
}

/// A way to tell, and where it is heard.
pub fn progress() -> (Progress, Receiver<ProgressEvent>) {
    let (sender, events) = channel();
    (Progress(sender), events)
}

impl Progress {
    /// For what nobody has ordered.
    pub fn unheard() -> Self {
        Self(channel().0)
    }

    /// What is done now.
    pub fn tell(&self, step: String) {
        let _ = self.0.send(ProgressEvent::Step(step));
    }

    /// What was done, or why it was not.
    pub fn end(self, done: Result<String, String>) {
        let _ = self.0.send(ProgressEvent::End(done));
    }
}
