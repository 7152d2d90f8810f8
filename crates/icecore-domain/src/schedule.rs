//! When something is done by itself: cron lines in a time zone, and delays.
