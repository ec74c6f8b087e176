//! The supervisors of a [`Sandbox`]: started when first needed, kept for many runs, replaced when lost.

use super::client::{Client, Refusal};
use super::root;
use crate::sandbox::{End, Isolation, Job, Layers, Limits, Outcome, SandboxError, Settings};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Limits of the run that tries every layer.
const TRIAL: Limits = Limits {
    cpu: Duration::from_secs(10),
    wall: Duration::from_secs(30),
    memory_bytes: 1 << 30,
    processes: 1,
    stdout_bytes: 1024,
    stderr_bytes: 1024,
    disk_bytes: 1 << 20,
};

/// Runs untrusted programs, as many at a time as it has workers. See the [module](crate::sandbox).
#[derive(Debug)]
pub struct Sandbox {
    settings: Settings,
    layers: Layers,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug)]
struct State {
    idle: Vec<Client>,
    /// Supervisors that exist or are being started.
    taken: usize,
}

impl Sandbox {
    /// Starts one supervisor and tries every layer with it, so that what is missing is known now.
    ///
    /// # Errors
    /// [`SandboxError::Unavailable`] with the step that failed and the way out, if the host denies a layer;
    /// [`SandboxError::Job`] for a root that cannot be shown; and what a supervisor may meet.
    pub fn new(settings: Settings) -> Result<Self, SandboxError> {
        if settings.isolation == Isolation::Full {
            for root in &settings.roots {
                if let Some(objection) = root::objection(root) {
                    return Err(SandboxError::Job(format!("the root `{}` {objection}", root.display())));
                }
            }
        }
        let (client, layers) = Client::start(&settings)?;
        match client.run(None, &TRIAL) {
            Ok(Outcome { end: End::Exited(0), .. }) => {}
            Ok(outcome) => {
                let reason = format!("the process ended with {:?}", outcome.end);
                return Err(unavailable("try every layer".to_owned(), reason));
            }
            Err(Refusal::Lost(SandboxError::Run { step, reason })) => return Err(unavailable(step, reason)),
            Err(Refusal::Lost(error) | Refusal::Final(error)) => return Err(error),
        }
        let state = Mutex::new(State { idle: vec![client], taken: 1 });
        Ok(Self { settings, layers, state, freed: Condvar::new() })
    }

    /// Runs one program to its end; waits while all workers are busy.
    ///
    /// # Errors
    /// Failures of the sandbox itself, never of the program. A supervisor that is lost is replaced and the job run
    /// once more before its loss is an error.
    pub fn run(&self, job: &Job<'_>) -> Result<Outcome, SandboxError> {
        let mut ticket = self.wait_for_turn();
        for attempt in 0.. {
            let client = match ticket.client.take() {
                Some(client) => client,
                None => Client::start(&self.settings)?.0,
            };
            match client.run(Some(job), &job.limits) {
                Ok(outcome) => {
                    ticket.client = Some(client);
                    return Ok(outcome);
                }
                Err(Refusal::Final(error)) => {
                    ticket.client = Some(client);
                    return Err(error);
                }
                Err(Refusal::Lost(error)) if attempt > 0 => return Err(error),
                Err(Refusal::Lost(_)) => {}
            }
        }
        Err(SandboxError::Lost("it was never tried".to_owned()))
    }

    /// What is in force.
    pub fn layers(&self) -> &Layers {
        &self.layers
    }

    fn wait_for_turn(&self) -> Ticket<'_> {
        let mut state = self.lock();
        loop {
            if let Some(client) = state.idle.pop() {
                return Ticket { sandbox: self, client: Some(client) };
            }
            if state.taken < self.settings.workers.max(1) {
                state.taken += 1;
                return Ticket { sandbox: self, client: None };
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // a thread that panicked cannot have left the list half-changed
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// a pool is shared by the threads of a stage
const _: fn() = || {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Sandbox>();
};

/// The right to one supervisor; given back on drop, with the supervisor if it is still well.
struct Ticket<'a> {
    sandbox: &'a Sandbox,
    client: Option<Client>,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut state = self.sandbox.lock();
        match self.client.take() {
            Some(client) => state.idle.push(client),
            None => state.taken -= 1,
        }
        drop(state);
        self.sandbox.freed.notify_one();
    }
}

fn unavailable(step: String, reason: String) -> SandboxError {
    SandboxError::Unavailable { step, reason, remedy: "see what the kernel's log says of it" }
}
