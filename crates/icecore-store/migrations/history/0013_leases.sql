-- Who does what none but one host may do at a time.

-- One row for each thing that is leased, of all tenants: the one key that no tenant leads.
-- `token` rises whenever the holder changes and is compared by every write under the lease,
-- so a row stays when its lease is given back: then it has no holder.
CREATE TABLE leases (
    name   TEXT NOT NULL PRIMARY KEY,
    holder TEXT,
    token  INTEGER NOT NULL,
    until  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
