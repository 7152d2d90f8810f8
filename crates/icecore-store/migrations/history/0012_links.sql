-- What clients send whole with every request, matched to sessions.

-- The keyed hash of a message and of all before it, and the turn that it is: a client's
-- history is found by it. In a session each is there once. It outlasts the turn's body:
-- what was forgotten is known again when a client sends it again, and stays forgotten.
-- `answered` tells whether an answer that went through us is among these messages: what a
-- client made up says nothing of whose history it is. `hollow` is a turn without words,
-- for a message that was forgotten elsewhere and came again.
CREATE TABLE links (
    tenant   INTEGER NOT NULL,
    scope    INTEGER NOT NULL,
    link     BLOB NOT NULL,
    session  INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    answered INTEGER NOT NULL CHECK (answered IN (0, 1)),
    hollow   INTEGER NOT NULL CHECK (hollow IN (0, 1)),
    PRIMARY KEY (tenant, scope, link, session),
    FOREIGN KEY (tenant, session, seq) REFERENCES turns (tenant, session, seq)
) STRICT, WITHOUT ROWID;

-- What memory put before a message when it was first sent, so that it stands there byte
-- for byte as long as the message is sent. It may quote anything of its memory: it holds
-- as long as nothing of that went, which `epoch` tells.
CREATE TABLE recalled (
    tenant  INTEGER NOT NULL,
    scope   INTEGER NOT NULL,
    link    BLOB NOT NULL,
    session INTEGER NOT NULL,
    epoch   INTEGER NOT NULL,
    text    TEXT NOT NULL,
    PRIMARY KEY (tenant, scope, link, session),
    FOREIGN KEY (tenant, scope, link, session) REFERENCES links (tenant, scope, link, session)
) STRICT, WITHOUT ROWID;
