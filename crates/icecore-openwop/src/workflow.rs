//! Workflows: what a run does, node by node.

/// A workflow that can be run.
pub(crate) struct Workflow;
