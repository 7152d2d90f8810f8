-- What clients send whole with every request, matched to sessions.

-- The keyed hash of a message and of all before it, and the turn that it is: a client's
-- history is found by it. In a session each is there once. It outlasts the turn's body:
-- what was forgotten is known again when a client sends it again, and stays forgotten.
CREATE TABLE links (
    tenant  INTEGER NOT NULL,
    scope   INTEGER NOT NULL,
    link    BLOB NOT NULL,
    session INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    PRIMARY KEY (tenant, scope, link, session),
    FOREIGN KEY (tenant, session, seq) REFERENCES turns (tenant, session, seq)
) STRICT, WITHOUT ROWID;
