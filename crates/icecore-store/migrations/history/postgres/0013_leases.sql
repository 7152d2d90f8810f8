-- Who does what none but one host may do at a time.

-- One row for each thing that is leased, of all tenants: the one key that no tenant leads.
-- `token` rises whenever the holder changes and is compared by every write under the lease,
-- so a row stays when its lease is given back: then it has no holder.
CREATE TABLE leases (
    name   TEXT COLLATE "C" NOT NULL,
    holder TEXT COLLATE "C",
    token  BIGINT NOT NULL,
    until  BIGINT NOT NULL,
    PRIMARY KEY (name)
);
