//! Budgets of summaries and windows, counted by the vocabulary that is used in earnest.

mod summary_budget;
mod window_budget;
