-- What PostgreSQL has beyond `schema.sql`. There are no sequences and no extensions. Text is
-- compared by its bytes, as in SQLite. `walls.sql` says who sees which rows.

-- No key crosses tenants: writers of all of them would lock the same few policies.
ALTER TABLE branches DROP CONSTRAINT branches_policy_fkey;

-- These rows change often, and a change that fits their page touches no index.
ALTER TABLE tenants SET (fillfactor = 60);
ALTER TABLE scopes SET (fillfactor = 60);
ALTER TABLE sessions SET (fillfactor = 60);
ALTER TABLE branches SET (fillfactor = 60);

-- These are compressed before they come here.
ALTER TABLE texts ALTER COLUMN text SET STORAGE EXTERNAL;
ALTER TABLE summaries ALTER COLUMN summary SET STORAGE EXTERNAL;

-- The last commit of each connection, by a random number. After losing its connection during a
-- commit, a host reads here whether the commit happened. Rows are spread over pages so that
-- connections do not wait for each other.
CREATE TABLE commits (
    connection BIGINT NOT NULL,
    token      BIGINT NOT NULL,
    at         TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (connection)
) WITH (fillfactor = 10);

-- Functions of SQLite that our statements call: `max(a, b)` and `min(a, b)` of two numbers,
-- `json_each(text)` with `key` and `value`, `json_extract(text, path)` for a member of an object as
-- text, `json_group_object(text, bigint)`, and `hex(bytea)`.

-- NULL if either is NULL, unlike `greatest` and `least`.
CREATE FUNCTION max(a BIGINT, b BIGINT) RETURNS BIGINT LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN a IS NULL OR b IS NULL THEN NULL ELSE greatest(a, b) END;

CREATE FUNCTION min(a BIGINT, b BIGINT) RETURNS BIGINT LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN a IS NULL OR b IS NULL THEN NULL ELSE least(a, b) END;

-- A JSON document with its escapes for U+0000 and U+0001 replaced by escapes for what we store
-- instead: PostgreSQL's text cannot hold U+0000. After an escaped backslash they are plain
-- letters.
CREATE FUNCTION storable(document TEXT) RETURNS JSON LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN position('\u000' IN document) = 0 THEN document ELSE
        regexp_replace(
            regexp_replace(document,
                '(?<!\\)((?:\\\\)*)\\u0001', '\1\\u0001\\u0002', 'g'),
            '(?<!\\)((?:\\\\)*)\\u0000', '\1\\u0001\\u0001', 'g')
    END::json;

-- The members of an array. `value` is a text as it is, anything else as JSON.
CREATE FUNCTION json_each(document TEXT) RETURNS TABLE (key BIGINT, value TEXT)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 8
BEGIN ATOMIC
    SELECT place - 1, member
    FROM json_array_elements_text(storable(document)) WITH ORDINALITY AS of(member, place);
END;

CREATE FUNCTION json_extract(document TEXT, path TEXT) RETURNS TEXT
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN storable(document) #>> string_to_array(ltrim(path, '$.'), '.');

-- An object of names and numbers.
CREATE FUNCTION json_group_step(members TEXT, name TEXT, value BIGINT) RETURNS TEXT
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN members || CASE WHEN members = '' THEN '' ELSE ',' END
        || to_json(name)::text || ':' || value;

CREATE FUNCTION json_group_end(members TEXT) RETURNS TEXT
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN '{' || members || '}';

CREATE AGGREGATE json_group_object(TEXT, BIGINT) (
    SFUNC = json_group_step, STYPE = TEXT, INITCOND = '', FINALFUNC = json_group_end,
    PARALLEL = SAFE
);

CREATE FUNCTION hex(bytes BYTEA) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN upper(encode(bytes, 'hex'));
