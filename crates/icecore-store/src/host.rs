pub(crate) mod api_keys;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod workspace;
